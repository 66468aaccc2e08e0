#include "runtime/simulate.h"
#include <string.h>
#include <time.h>

enum { BYTES = 256 }; /* the first ids are single bytes, most of them no text by themselves */

status simulated_step(void *ud, const model_batch *b, i64 vocab, err *e) {
    const i64 *ns = ud, words = vocab * 4 / 5 - BYTES;
    (void)e;
    if (*ns) nanosleep(&(struct timespec){.tv_sec = *ns / 1000000000, .tv_nsec = *ns % 1000000000}, NULL);
    memset(b->bad, 0, (size_t)b->n * sizeof *b->bad);
    memset(b->logits, 0, (size_t)(b->n_out * vocab) * sizeof *b->logits);
    for (i64 i = 0; i < b->n_out; i++) {
        i64 last = b->ids[b->out_rows[i]], next = words > 0 ? BYTES + (last * 31 + 7) % words : last;
        b->logits[i * vocab + next] = 50;
    }
    return ST_OK;
}
