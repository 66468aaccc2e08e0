/* What a server sends to `moonlet bench serving`, cut into pieces at a place that the first byte names: the same text in
 * one piece and in two, and no answer is both complete and broken. */
#include "../../cmd/answer_stream.c"
#include <stdlib.h>

static void on_piece(void *ud, const answer_piece *p) {
    if (!p->text || (p->len && !p->text[0] && p->new_tokens < -1)) abort();
    buf_add(ud, p->text, p->len);
}

static void read_cut(const char *bytes, size_t n, size_t cut, bool whole, buf *text) {
    answer_stream s = {.on_piece = on_piece, .ud = text, .keep_body = whole};
    answer_stream_add(&s, bytes, cut);
    answer_stream_add(&s, bytes + cut, n - cut);
    answer_stream_end(&s);
    if (!s.done && !s.error[0]) abort();
    answer_stream_free(&s);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);
int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    if (!n) return 0;
    for (int whole = 0; whole < 2; whole++) {
        buf a = {0}, b = {0};
        read_cut((const char *)data + 1, n - 1, n - 1, whole, &a);
        read_cut((const char *)data + 1, n - 1, data[0] % n, whole, &b);
        if (a.len != b.len || (a.len && memcmp(a.data, b.data, a.len))) abort();
        buf_free(&a);
        buf_free(&b);
    }
    return 0;
}
