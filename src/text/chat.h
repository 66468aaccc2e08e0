/* text/chat.h: Kimi's chat templates: messages in, prompt out.
 *
 * The templates are written in C, byte for byte what the published Jinja files render (K2-Instruct in three
 * revisions, K2-Thinking, K2.5). Control tokens come from the template alone: text of a message that looks
 * like one is encoded as ordinary text.
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
    CHAT_K2_INSTRUCT_0711, /* revision r1, July 2025: does not render tool calls of the history        */
    CHAT_K2_INSTRUCT_0905, /* revision r2                                                              */
    CHAT_K2_INSTRUCT_R3,   /* a later edit: compact JSON tools, a newline after the default system     */
    CHAT_K2_THINKING,
    CHAT_K2_5,
    CHAT_TEMPLATES /* their number */
} chat_template;

const char *chat_template_name(chat_template t); /* "k2-instruct-0711", ..., "k2.5" */
status chat_template_parse(chat_template *out, const char *name, err *e); /* the same names back        */
/* Which template a model's folder asks for: model_type kimi_k25 has k2.5; else what its chat_template.jinja
 * shows (recognised by strings in it); else k2-thinking when `<think>` is a token, else k2-instruct-0905.
 * model_type and t may be NULL. *why gets a static string for the start-up line. */
chat_template chat_template_of(const char *dir, const char *model_type, const tokenizer *t, const char **why);

/* A rendered prompt. */
typedef struct {
    buf text;       /* what the Jinja template would have produced                                   */
    ids_buf ids;    /* its token ids                                                                 */
    bool in_think;  /* the prompt ends inside <think>: generation starts as reasoning                */
    err tools_json; /* k2.5: why the tools are JSON and not TypeScript; code ST_OK when they are not */
} chat_prompt;
void chat_prompt_free(chat_prompt *p);

typedef struct {
    const json_t *messages; /* array of {"role", "content", ...} as in the OpenAI API */
    const json_t *tools;  /* array, JSON null or NULL                                                      */
    const json_t *kwargs; /* chat_template_kwargs, object, JSON null or NULL. k2.5 reads "thinking" (only a
                             boolean false turns it off); no other key means anything to a template        */
    bool add_generation_prompt;
    size_t max_text, max_ids; /* of the prompt, in bytes and ids; 0: no limit */
} chat_request;

/* Renders and tokenises: ordinary text between two control tokens is encoded as one run with specials off.
 * tok NULL: text only, no ids. Zero-initialise *out and end it with chat_prompt_free() also after a failure.
 * ST_INPUT names the message and key that is wrong ("messages[3].tool_calls[0].function.name: ...").
 * ST_UNSUPPORTED names a control token that the template needs and the tokenizer lacks. ST_LIMIT: longer than
 * max_text or max_ids; nothing was written beyond them. */
status chat_render(chat_template t, const tokenizer *tok, const chat_request *r, chat_prompt *out, err *e);

#endif
