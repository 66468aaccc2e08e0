/* text/chat.h: Kimi's chat templates: messages in, prompt out.
 *
 * The templates are written in C, byte for byte what the published Jinja files render (K2-Instruct in three
 * revisions, K2-Thinking, K2.5; those of K2.6 and K2.7-Code were not at hand, docs/design/decisions.md says what theirs
 * rest on). Control tokens come from the template alone: text of a message that looks like one is encoded as
 * ordinary text.
 *
 * Where the Jinja files fail or print Python's view of a value, this one does what was meant: a null
 * content, text, id or reasoning_content counts as "" (Jinja prints "None"), and a list as the content of a
 * tool result or beside tool calls prints its parts (k2-instruct-0905 prints the list). A part that would
 * vanish without a word (a type the template does not know, without "text") is an error. */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H
#include "base/json.h"
#include "text/tokenizer.h"

typedef enum {
    CHAT_K2_INSTRUCT_0711, /* revision r1, July 2025: does not render tool calls of the history */
    CHAT_K2_INSTRUCT_0905, /* revision r2 */
    CHAT_K2_INSTRUCT_R3,   /* a later edit: compact JSON tools, a newline after the default system */
    CHAT_K2_THINKING,
    CHAT_K2_5,      /* it and those behind it: think blocks that the template opens, TypeScript tools */
    CHAT_K2_6,      /* K2.5 with preserve_thinking, off by default */
    CHAT_K2_7_CODE, /* K2.6 that always thinks and always preserves */
    CHAT_TEMPLATES  /* their number */
} chat_template;

const char *chat_template_name(chat_template t);                          /* "k2-instruct-0711", ..., "k2.7-code" */
status chat_template_parse(chat_template *out, const char *name, err *e); /* the same names back */
bool chat_template_always_thinks(chat_template t);                        /* k2.7-code */
bool chat_template_model_opens_think(chat_template t); /* k2-thinking: <think> is the model's own, not the prompt's */
/* Which template a model's folder asks for: what its chat_template.jinja shows (recognised by strings in it). A file
 * of K2.5's kind without "preserve_thinking" is k2.5, with it k2.6; it is k2.7-code when that argument is true by
 * default (in the file, or in tokenization_kimi.py beside it) or when nothing in it can do without thinking. Without
 * a known file model_type kimi_k25 has k2.5, which is how k2.6 renders by default; other models k2-thinking when
 * `<think>` is a token, else k2-instruct-0905. model_type and t may be NULL. *why gets a static string for the
 * start-up line. */
chat_template chat_template_of(const char *dir, const char *model_type, const tokenizer *t, const char **why);

/* A rendered prompt. */
typedef struct {
    buf text;       /* what the Jinja template would have produced */
    ids_buf ids;    /* its token ids */
    bool in_think;  /* the prompt ends inside <think>: generation starts as reasoning */
    err tools_json; /* k2.5: why the tools are JSON and not TypeScript; code ST_OK when they are not */
} chat_prompt;
void chat_prompt_free(chat_prompt *p);

/* A video as K2.5's prompt has it: pieces, each behind the time of its first frame, "00:00:02.000". */
enum { CHAT_STAMP = 16 };
typedef struct {
    char (*stamps)[CHAT_STAMP]; /* [n] */
    size_t n;
} chat_video;

typedef struct {
    const json_t *messages; /* array of {"role", "content", ...} as in the OpenAI API */
    const json_t *tools;    /* array, JSON null or NULL */
    const json_t *kwargs;   /* chat_template_kwargs, object, JSON null or NULL. k2.5 and k2.6 read "thinking" (only a
                             boolean false turns it off), k2.6 "preserve_thinking" (true: earlier assistant turns keep
                             their reasoning); k2.7-code refuses false for either. Other keys mean nothing */
    bool add_generation_prompt;
    const chat_video *videos; /* [n_videos], those of the messages, in order; without a tokenizer none are needed */
    size_t n_videos;
    size_t max_text, max_ids; /* of the prompt, in bytes and ids; 0: no limit */
} chat_request;

/* Renders and tokenises: ordinary text between two control tokens is encoded as one run with specials off.
 * tok NULL: text only, no ids. Zero-initialise *out and end it with chat_prompt_free() also after a failure.
 * ST_INPUT names the message and key that is wrong ("messages[3].tool_calls[0].function.name: ...").
 * ST_UNSUPPORTED names a control token that the template needs and the tokenizer lacks. ST_LIMIT: longer than
 * max_text or max_ids; nothing was written beyond them. */
status chat_render(chat_template t, const tokenizer *tok, const chat_request *r, chat_prompt *out, err *e);

#endif
