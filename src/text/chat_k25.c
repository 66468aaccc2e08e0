/* K2-Thinking, K2.5, K2.6 and K2.7-Code.
 *
 * Everything up to the last assistant message without tool calls is history: its reasoning is dropped. What follows
 * is the tool loop in progress, whose reasoning the model gets back. K2.5 declares tools in TypeScript, has no
 * default system message, and opens (or, with thinking off, closes) the think block itself. With preserve_thinking
 * (K2.6; always in K2.7-Code) nothing is history. Sources: the K2.5 template as kept in lightseekorg/smg's test
 * fixtures, and ggml-org/llama.cpp's copy of K2-Thinking's, whose tools the official file prints compactly; for K2.6
 * the tests of thinking-machines-lab/tinker-cookbook, which compare K2.5's rendering with and without history with
 * the published file. */
#include "text/chat_parts.h"
#include "text/pyjson.h"
#include "text/ts_tools.h"

static void k25_tools_block(chat_writer *w, const json_t *tools, chat_prompt *out) {
    if (w->st != ST_OK) return;
    json_t *sorted = py_sorted(tools); /* as the tokenizer's own apply_chat_template does */
    if (!sorted) {
        w->st = err_nomem(w->e, "tools", 0);
        return;
    }
    chat_declare_tools(w, "");
    size_t before = w->text->len;
    status st = w->kind >= CHAT_K2_5 && w->st == ST_OK ? ts_tools_encode(w->text, sorted, &out->tools_json) : ST_OK;
    if (st == ST_NOMEM) w->st = err_nomem(w->e, "tools", 0);
    if (w->text->len == before && !w->text->failed) chat_json(w, sorted, ",", ":");
    chat_control(w, "<|im_end|>");
    json_decref(sorted);
}

/* Index behind the history: one past the last assistant message without tool calls, 0 when there is none. */
static size_t history_end(const chat_input *in) {
    size_t i = in->n;
    while (i && !(in->messages[i - 1].assistant && !in->messages[i - 1].calls)) i--;
    return i;
}

static void k25_message(chat_writer *w, const chat_message *m, size_t at, bool keep_reasoning) {
    chat_frame(w, m);
    if (m->assistant) {
        chat_control(w, "<think>");
        if (keep_reasoning) chat_bytes(w, m->reasoning);
        chat_control(w, "</think>");
    }
    if (m->tool) {
        chat_text(w, "## Return of ");
        chat_bytes(w, m->call_id);
        chat_text(w, "\n");
    }
    chat_content(w, m, at);
    if (m->assistant) chat_tool_calls(w, m);
    chat_control(w, "<|im_end|>");
}

void chat_render_k25(chat_writer *w, const chat_input *in, chat_prompt *out) {
    bool k25 = w->kind >= CHAT_K2_5;
    bool thinking = in->thinking || !k25; /* K2-Thinking has no switch */
    size_t history = in->preserve_thinking ? 0 : history_end(in);
    if (in->tools) k25_tools_block(w, in->tools, out);
    if (!k25 && (!in->n || !in->messages[0].system))
        chat_default_system(w, "You are Kimi, an AI assistant created by Moonshot AI.");
    for (size_t i = 0; i < in->n; i++) k25_message(w, &in->messages[i], i, i >= history && thinking);
    if (!in->add_generation_prompt) return;
    chat_control(w, "<|im_assistant|>");
    chat_text(w, "assistant");
    chat_control(w, "<|im_middle|>");
    if (!k25) return;
    chat_control(w, "<think>");
    if (!thinking) chat_control(w, "</think>");
    out->in_think = thinking;
}
