/* text/parse.h: what the model wrote, taken apart: reasoning, content, tool calls.
 *
 * A state machine fed with token ids one at a time, or with text where there are no ids. The same output
 * gives the same events however it is cut, except that adjacent deltas of one kind may be joined or split;
 * streamed and whole results are equal. Time is linear, and nothing is held back but what may still become a
 * marker, white space that may end the arguments, and the arguments of a call whose tool is not known yet.
 *
 *               <think>                        section_begin
 *   START ---------------> REASONING ----+   +--------------> SECTION <------------+
 *     |  text                 |          |   |                  |  ^ section_end   | call_end
 *     +-------> CONTENT <-----+ </think> |   |                  v  |               |
 *                  ^  |                  v   |       call_begin    |               |
 *                  |  +--------------------> + ----------------> ID -- argument_begin --> ARGUMENTS
 *                  +--- section_end
 *
 *   START      nothing but white space so far; K2-Thinking writes its own <think>
 *   REASONING  until </think>, or until a tool section or call begins
 *   SECTION    text is noise and is dropped
 *   ID         text up to argument_begin; a second call_begin starts over, a call_end drops the call
 *   ARGUMENTS  text as the model wrote it, JSON or not, without white space around it; any other marker of
 *              the tool section ends the call too
 *
 * With ids only the marker ids count: a marker that the model spells in letters is text. The one exception are
 * <|tool_call_section_begin|> and _end (singular), which the vocabulary lacks and models write all the same.
 */
#ifndef TEXT_PARSE_H
#define TEXT_PARSE_H
#include "base/json.h"
#include "text/tokenizer.h"

typedef enum {
    PARSE_REASONING,  /* text */
    PARSE_CONTENT,    /* text */
    PARSE_CALL_BEGIN, /* id, name */
    PARSE_CALL_ARGS,  /* text: the next piece of the arguments */
    PARSE_CALL_END,   /* complete: false when the output ended inside the call */
} parse_kind;

typedef struct {
    parse_kind kind;
    const char *text; /* [len] whole characters; valid during the call */
    size_t len;
    const char *id;   /* NUL-terminated: the model's own id ("functions.get_weather:0") */
    const char *name; /* NUL-terminated: the tool */
    size_t index;     /* of the call, dense from 0 */
    bool complete;
} parse_event;

/* Anything but ST_OK stops the parser; parse_add() and parse_end() return it. */
typedef status (*parse_sink)(void *ud, const parse_event *ev, err *e);

typedef struct {
    const json_t *tools; /* the request's tools or NULL; must outlive the parser. Names a call whose id does not */
    bool in_think;       /* the prompt ended inside <think> (chat_prompt.in_think) */
    bool plain;          /* no reasoning at all: <think> and </think> are ordinary text (thinking switched off) */
    bool no_calls;       /* tool_choice "none": markers are dropped, everything else is content */
} parse_options;

typedef struct parser parser;

/* tok NULL: text only, parse_add() is an error. A marker that the vocabulary lacks cannot occur. */
status parser_open(parser **out, const tokenizer *tok, const parse_options *o, parse_sink sink, void *ud, err *e);
void parser_close(parser *p); /* NULL allowed */

status parse_add(parser *p, i32 id, err *e);
/* For outputs that exist only as text: markers are recognised by their spelling. */
status parse_add_text(parser *p, const char *text, size_t len, err *e);
/* The output is over: delivers what was held back and ends an open call. */
status parse_end(parser *p, err *e);

bool parse_in_reasoning(const parser *p); /* the next text would be reasoning */
size_t parse_calls(const parser *p);      /* tool calls begun so far */
size_t parse_dropped(const parser *p);    /* calls dropped: no tool fits */

#endif
