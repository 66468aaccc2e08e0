#include "server/status/latency_window.h"
#include <string.h>

/* 0..15 are themselves; from there 16 buckets for each power of two. */
static int window_bucket_of(f64 seconds) {
    f64 us = seconds * 1e6;
    if (!(us > 0)) return 0;
    u64 x = us >= 2147483647 ? 2147483647 : (u64)us;
    if (x < 16) return (int)x;
    int top = 63 - __builtin_clzll(x);
    return (top - 3) * 16 + (int)(x >> (top - 4) & 15);
}

static f64 middle_of(int bucket) {
    if (bucket < 16) return (bucket + 0.5) * 1e-6;
    int top = bucket / 16 + 3;
    f64 width = (f64)(1 << (top - 4));
    return ((f64)(16 + bucket % 16) + 0.5) * width * 1e-6;
}

void latency_window_add(latency_window *w, f64 now, f64 seconds) {
    i64 second = (i64)now, i = second % (WINDOW_S + 1);
    if (w->slot[i].second != second) {
        memset(w->slot[i].count, 0, sizeof w->slot[i].count);
        w->slot[i].second = second;
    }
    w->slot[i].count[window_bucket_of(seconds)]++;
}

static f64 quantile(const i64 *count, i64 n, f64 p) {
    i64 below = 0, rank = (i64)(p * (f64)(n - 1)); /* of the sorted values, from 0 */
    for (int b = 0; b < WINDOW_BUCKETS; b++)
        if ((below += count[b]) > rank) return middle_of(b);
    return 0;
}

quantiles latency_window_quantiles(const latency_window *w, f64 now) {
    i64 count[WINDOW_BUCKETS] = {0}, n = 0, oldest = (i64)now - WINDOW_S;
    for (int i = 0; i <= WINDOW_S; i++) {
        if (!w->slot[i].second || w->slot[i].second < oldest) continue;
        for (int b = 0; b < WINDOW_BUCKETS; b++) count[b] += w->slot[i].count[b];
    }
    for (int b = 0; b < WINDOW_BUCKETS; b++) n += count[b];
    if (!n) return (quantiles){0};
    return (quantiles){
        .n = n, .p50 = quantile(count, n, 0.5), .p90 = quantile(count, n, 0.9), .p99 = quantile(count, n, 0.99)};
}
