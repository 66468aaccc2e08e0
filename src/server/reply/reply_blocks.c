/* server/reply/reply_blocks.c: an answer as a sequence of blocks.
 *
 * Anthropic's content blocks and the items of Responses follow one rule: a block begins, grows and ends before the
 * next one begins. Reasoning, text and every tool call are blocks, in the order in which the model wrote them. */
#include "server/reply/reply.h"

static void end_block(reply *p, const block_writer *w, bool complete, buf *out) {
    reply_blocks *b = &p->blocks;
    if (!b->open) return;
    if (out) w->end(p, complete, out);
    if (b->done.len) buf_char(&b->done, ',');
    w->json(p, complete, &b->done);
    b->open = false;
    b->index++;
}

static void begin_block(reply *p, const block_writer *w, piece_kind kind, i64 call, buf *out) {
    reply_blocks *b = &p->blocks;
    b->open = true;
    b->kind = kind;
    b->call = call;
    buf_clear(&b->text);
    if (out) w->begin(p, out);
}

void reply_blocks_write(reply *p, const answer *a, const block_writer *w, buf *out) {
    reply_blocks *b = &p->blocks;
    for (size_t i = 0; i < a->n_pieces; i++) {
        const piece *x = &a->pieces[i];
        const char *text = a->text.data + x->at;
        if (x->kind == PIECE_CALL_BEGIN) {
            end_block(p, w, true, out);
            buf_clear(&b->name);
            buf_add(&b->name, text, x->len);
            begin_block(p, w, PIECE_CALL_ARGS, x->call, out);
            continue;
        }
        if (!b->open || b->kind != x->kind || b->call != x->call) {
            end_block(p, w, true, out);
            begin_block(p, w, x->kind, x->call, out);
        }
        buf_add(&b->text, text, x->len);
        if (out) w->delta(p, text, x->len, out);
    }
    if (a->done) end_block(p, w, a->finish[0] != 'l', out);
    if (out) out->failed |= b->name.failed || b->text.failed || b->done.failed;
}
