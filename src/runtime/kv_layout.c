#include "runtime/kv_layout.h"
#include <stdio.h>

i64 kv_layout_choose(const kv_layout_wish *w, char why[160]) {
    why[0] = 0;
    if (w->asked) return w->asked;
    if (w->ranks < 2 || !w->gpus) return 1;
    const bool can = w->divisible && !w->deterministic, divide = can && w->wanted > w->room;
    int n = snprintf(why, 160, divide ? "KV cache: the ranks divide it" : "KV cache: every rank has all of it");
    if (!can)
        n += snprintf(why + n, (size_t)(160 - n), ", because of %s",
                      w->deterministic ? "--deterministic" : "NCCL, or rows of other than multiples of 16 bytes");
    else if (w->wanted)
        n += snprintf(why + n, (size_t)(160 - n), ": %lld tokens are wanted, %s than the %lld that fit each",
                      (long long)w->wanted, divide ? "more" : "not more", (long long)w->room);
    if (can) snprintf(why + n, (size_t)(160 - n), " (else: --dcp %lld)", (long long)(divide ? 1 : w->ranks));
    return divide ? w->ranks : 1;
}
