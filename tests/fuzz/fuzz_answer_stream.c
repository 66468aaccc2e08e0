/* What a server sends to `moonlet bench serving`, cut into pieces at a place that the first byte names: the same
 * text in one piece and in two, no answer is both complete and broken, and no more tokens are counted than were
 * asked for. */
#include "cmd/lib/answer_stream.c"
#include <stdlib.h>

enum { ASKED = 50 };

typedef struct {
    buf text;
    i64 tokens;
} got;

static void on_piece(void *ud, const answer_piece *p) {
    got *g = ud;
    if (!p->text || p->new_tokens < -1) abort();
    if (p->new_tokens > 0) g->tokens += p->new_tokens;
    if (g->tokens > ASKED || (i64)json_array_size(p->ids) > ASKED) abort();
    buf_add(&g->text, p->text, p->len);
}

static void read_cut(const char *bytes, size_t n, size_t cut, bool whole, got *g) {
    answer_stream s = {.on_piece = on_piece, .ud = g, .keep_body = whole, .max_tokens = ASKED};
    answer_stream_add(&s, bytes, cut);
    answer_stream_add(&s, bytes + cut, n - cut);
    answer_stream_end(&s);
    if (!s.done && !s.error[0]) abort();
    if (s.output_tokens > ASKED || s.prompt_tokens > ANSWER_TOKENS_MAX || s.cached_tokens > ANSWER_TOKENS_MAX) abort();
    answer_stream_free(&s);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);
int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    if (!n) return 0;
    for (int whole = 0; whole < 2; whole++) {
        got a = {0}, b = {0};
        read_cut((const char *)data + 1, n - 1, n - 1, whole, &a);
        read_cut((const char *)data + 1, n - 1, data[0] % n, whole, &b);
        if (a.text.len != b.text.len || (a.text.len && memcmp(a.text.data, b.text.data, a.text.len))) abort();
        buf_free(&a.text);
        buf_free(&b.text);
    }
    return 0;
}
