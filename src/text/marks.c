#include "text/marks.h"
#include <string.h>

const char *const mark_text[MARKS] = {
    [MARK_THINK] = "<think>",
    [MARK_THINK_END] = "</think>",
    [MARK_SECTION] = "<|tool_calls_section_begin|>",
    [MARK_SECTION_END] = "<|tool_calls_section_end|>",
    [MARK_CALL] = "<|tool_call_begin|>",
    [MARK_ARGUMENT] = "<|tool_call_argument_begin|>",
    [MARK_CALL_END] = "<|tool_call_end|>",
    [MARK_SECTION_1] = "<|tool_call_section_begin|>",
    [MARK_SECTION_END_1] = "<|tool_call_section_end|>",
};

/* MARKS when s[n] begins no wanted marker, the marker when it is one whole, -1 when it may become one. */
static int match(const mark_scanner *s) {
    int found = MARKS;
    for (int m = 0; m < MARKS; m++) {
        if (!(s->wanted >> m & 1) || strncmp(mark_text[m], s->held, s->n_held)) continue;
        if (!mark_text[m][s->n_held]) return m;
        found = -1;
    }
    return found;
}

void mark_scan_end(mark_scanner *s, mark_text_fn on_text, void *ud) {
    if (s->n_held) on_text(ud, s->held, s->n_held);
    s->n_held = 0;
}

void mark_scan(mark_scanner *s, const char *text, size_t len, mark_text_fn on_text, mark_fn on_mark, void *ud) {
    size_t from = 0; /* text[from, i) is plain and not delivered yet */
    for (size_t i = 0; i < len; i++) {
        if (!s->n_held && text[i] != '<') continue;
        if (i > from) on_text(ud, text + from, i - from);
        from = i + 1;
        if (text[i] == '<') mark_scan_end(s, on_text, ud);
        s->held[s->n_held++] = text[i];
        int m = match(s);
        if (m == MARKS) {
            mark_scan_end(s, on_text, ud);
        } else if (m >= 0) {
            s->n_held = 0;
            on_mark(ud, (mark)m);
        }
    }
    if (len > from) on_text(ud, text + from, len - from);
}
