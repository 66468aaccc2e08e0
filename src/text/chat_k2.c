/* K2-Instruct: three revisions of one file.
 *
 *                       0711                  0905                          r3
 *   default system      helpful assistant     Kimi                          Kimi, then a newline
 *   tools               JSON ", " ": "        "# Tools", JSON ", " ": "     JSON "," ":"
 *   name of a message   not used              in the frame                  in the frame
 *   tool calls          not rendered          rendered                      rendered
 *   tool result         bare                  "Return of", four spaces      "Return of"
 *
 * Sources: ggml-org/llama.cpp models/templates/moonshotai-Kimi-K2.jinja (0711); two public copies of the 0905
 * file and the prompts expected by alibaba/rtp-llm's tests (0905); for r3 only third-party descriptions. */
#include "text/chat_parts.h"

static void k2_tools_block(chat_writer *w, const json_t *tools) {
    chat_declare_tools(w, w->kind == CHAT_K2_INSTRUCT_0905 ? "\n  # Tools\n  " : "");
    if (w->kind == CHAT_K2_INSTRUCT_R3)
        chat_json(w, tools, ",", ":");
    else
        chat_json(w, tools, ", ", ": ");
    chat_control(w, "<|im_end|>");
}

static void default_system(chat_writer *w) {
    chat_default_system(w, w->kind == CHAT_K2_INSTRUCT_0711 ? "You are a helpful assistant"
                                                            : "You are Kimi, an AI assistant created by Moonshot AI.");
    if (w->kind == CHAT_K2_INSTRUCT_R3) chat_text(w, "\n");
}

/* The first revision frames four roles and leaves the text of any other one standing without a frame. */
static void message_0711(chat_writer *w, const chat_message *m, size_t at) {
    if (!m->user && !m->assistant && !m->tool && !m->system) {
        if (w->st == ST_OK)
            w->st = err_set(w->e, ST_INPUT, "messages[%zu].role: template k2-instruct-0711 has no role \"%.40s\"", at,
                            m->role.s);
        return;
    }
    chat_message plain = *m;
    plain.name = m->role;
    chat_frame(w, &plain);
    chat_content(w, m, at);
    chat_control(w, "<|im_end|>");
}

static void k2_message(chat_writer *w, const chat_message *m, size_t at) {
    chat_frame(w, m);
    if (m->tool) {
        chat_text(w, "## Return of ");
        chat_bytes(w, m->call_id);
        chat_text(w, w->kind == CHAT_K2_INSTRUCT_0905 ? "\n    " : "\n");
    }
    chat_content(w, m, at);
    if (m->assistant) chat_tool_calls(w, m);
    chat_control(w, "<|im_end|>");
}

void chat_render_k2(chat_writer *w, const chat_input *in) {
    if (in->tools) k2_tools_block(w, in->tools);
    if (in->n && !in->messages[0].system) default_system(w);
    for (size_t i = 0; i < in->n; i++) {
        if (w->kind == CHAT_K2_INSTRUCT_0711)
            message_0711(w, &in->messages[i], i);
        else
            k2_message(w, &in->messages[i], i);
    }
    if (!in->add_generation_prompt) return;
    chat_control(w, "<|im_assistant|>");
    chat_text(w, "assistant");
    chat_control(w, "<|im_middle|>");
}
