/* text/grammar/constraint.h: what an answer must be, over its token ids: reasoning first where the model thinks, then
 * text that a grammar lets pass, then the end; or Kimi's section of tool calls, whose names are those of the tools and
 * whose arguments satisfy their schemas.
 *
 * A constraint is compiled once and holds for any number of answers at a time; what it learns of its grammar (automata,
 * masks) serves all of them. An answer is a run of it. The state of a run is a number that stands for all ids so far:
 * it can be kept, gone on from several times and come back to.
 *
 *   MAY THINK --<think>--> THINKING --</think>--> the grammar: content, or a section of calls --> the end
 *      +----------- anything of the grammar ---------^
 *
 * While it thinks all text may come but no end of the answer; where calls may come, so may their section, by which the
 * model breaks its thinking off. Free content (CONTENT_FREE beside calls) is left as it is until the section begins.
 *
 * All functions may be called from any thread; one at a time walks a constraint. */
#ifndef TEXT_GRAMMAR_CONSTRAINT_H
#define TEXT_GRAMMAR_CONSTRAINT_H
#include "base/json.h"
#include "text/grammar/token_trie.h"

typedef enum {
    CONTENT_FREE,   /* anything */
    CONTENT_OBJECT, /* some JSON object */
    CONTENT_SCHEMA, /* `value`: a JSON Schema */
    CONTENT_REGEX,  /* `value`: a string, matched from beginning to end */
    CONTENT_EBNF,   /* `value`: a string (ebnf.h) */
    CONTENT_CHOICE, /* `value`: an array of strings, one of which it is */
    CONTENT_TAGS    /* `value`: a structural tag (structural_tag.h) */
} content_kind;

typedef enum {
    CALLS_NEVER,
    CALLS_MAYBE,
    CALLS_MUST /* and no content, which is not looked at */
} calls_kind;

typedef struct {
    content_kind content;
    const json_t *value;
    bool strict; /* CONTENT_SCHEMA: what cannot be held is an error; else it is passed over, with a warning */
    calls_kind calls;
    /* Those that may be called: [{"function": {"name", "parameters", "strict"}}, ...]. Arguments satisfy `parameters`;
     * of a tool without strict: true as far as it can be held, with a warning, or are some JSON object. */
    const json_t *tools;
    bool one_call;           /* exactly one; else one or more */
    json_space space;        /* between the tokens of JSON */
    bool in_order;           /* properties come in the order of their schema, others behind them; else in any */
    const atomic_bool *stop; /* set while it is compiled: ST_CANCELLED, soon; may be NULL */
} constraint_source;

typedef struct constraint constraint;
/* Has one holder, the caller. tok, and trie of tok, must outlive it; the source need not. warnings [appended]: what was
 * passed over, a line each; may be NULL. ST_INPUT, ST_UNSUPPORTED, ST_LIMIT: errors name keyword and place, of a tool
 * with its name. ST_CANCELLED: by source->stop. */
status constraint_compile(constraint **out, const constraint_source *source, const token_trie *trie,
                          const tokenizer *tok, buf *warnings, err *e);
constraint *constraint_hold(constraint *c); /* one holder more; returns c */
void constraint_release(constraint *c);     /* the last one frees it; NULL allowed */
u64 constraint_bytes(constraint *c);        /* memory that it takes by now, about */

typedef enum {
    BEGIN_CONTENT,  /* no thinking: thinking is off, or there is no chat */
    BEGIN_IN_THINK, /* the prompt ended inside <think> */
    BEGIN_MAY_THINK /* the model writes its own <think>, or none */
} answer_begin;

/* One answer. Holds its constraint. first_call: the running index of its first tool call; indices from 256 on, fewer
 * where there are more than 128 tools, are let through whatever they are. BEGIN_IN_THINK of a tokenizer without
 * </think>: ST_UNSUPPORTED; BEGIN_MAY_THINK of one that cannot think is BEGIN_CONTENT. */
typedef struct constraint_run constraint_run;
status constraint_run_open(constraint_run **out, constraint *c, answer_begin begin, i64 first_call, err *e);
void constraint_run_close(constraint_run *r); /* NULL allowed */

enum { RUN_DEAD = -1 }; /* all other states are 0 or more; a state is its run's own */
i32 constraint_run_start(const constraint_run *r);
/* The state behind one id more; RUN_DEAD if it may not come, and for ids that end an answer. */
i32 constraint_run_next(constraint_run *r, i32 state, i32 id);
/* The state behind text that the answer has already, of a message that goes on. RUN_DEAD: it does not fit. Text is no
 * mark, however it is spelled; where the model may think and has not begun, text is content. */
i32 constraint_run_next_text(constraint_run *r, i32 state, const char *text, size_t len);
/* mask [ceil(vocab / 64)]: bit of an id is set if it may come next; ids that end an answer are not in it, may_end says
 * whether it may end here. ST_LIMIT, ST_NOMEM: the grammar has become too much, here and from here on, also for other
 * runs of that time; those that begin later start afresh. */
status constraint_run_mask(constraint_run *r, i32 state, u64 *mask, bool *may_end, err *e);
/* The ids of text that must come next, as the tokenizer writes it, as far as nothing that may follow it could change
 * how it is cut into tokens: the last piece is left open where it could. Marks of calls are among them. At most `most`
 * ids; returns how many, 0: a choice comes next, or nothing but the end. */
i64 constraint_run_forced(constraint_run *r, i32 state, i32 *ids, i64 most);

#endif
