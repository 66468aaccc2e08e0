/* kernels/ref/beams.c: what a tree of guesses needs beside the other ops: KV rows copied, and the beams that go on. The
 * cpu backend's too. */
#include "kernels/ref/ref.h"
#include <math.h>
#include <string.h>

void ref_kv_copy(const ops *o, const kv_copy_args *a) {
    (void)o;
    const i64 n = a->count ? *a->count : a->most;
    team tm = team_begin(a->layers * n * (i64)a->row_bytes / 8);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 l = 0; l < a->layers; l++)
        for (i64 i = 0; i < n; i++) {
            u8 *kv = (u8 *)a->kv + (u64)l * a->layer_bytes;
            const kv_pair p = a->pairs[i];
            if (p.from >= 0 && p.from != p.to)
                memcpy(kv + (u64)p.to * a->row_bytes, kv + (u64)p.from * a->row_bytes, a->row_bytes);
        }
    team_end(&tm);
}

static f32 candidate_score(const draft_beams_args *a, i64 row, f32 score, i64 c) {
    const f32 *logprobs = a->logprobs + row * (1 + a->k), v = score + logprobs[1 + c];
    return isfinite(logprobs[0]) && !isnan(v) ? v : -INFINITY;
}

/* The k best of a sequence's candidates, best first; score: of each. */
static void best_candidates(const draft_beams_args *a, i64 i, i32 *best, f32 *score) {
    bool taken[BEAMS_MOST * BEAMS_MOST] = {0};
    for (i64 j = 0; j < a->k; j++) {
        best[j] = -1;
        for (i64 c = 0; c < a->beams * a->k; c++) {
            const i64 b = c / a->k;
            const f32 s = candidate_score(a, i * a->beams + b, a->beams > 1 ? a->scores[i * a->k + b] : 0, c % a->k);
            if (taken[c] || (best[j] >= 0 && !(s > score[j]))) continue;
            best[j] = (i32)c, score[j] = s;
        }
        taken[best[j]] = true;
    }
}

/* place[j]: of the j-th best. */
static void beam_places(const draft_beams_args *a, const i32 *best, i64 *place) {
    bool taken[BEAMS_MOST] = {0};
    i64 next = 0;
    for (i64 j = 0; j < a->k; j++) {
        const i64 b = best[j] / a->k;
        place[j] = -1;
        if (a->beams > 1 && !taken[b]) taken[b] = true, place[j] = b;
    }
    for (i64 j = 0; j < a->k; j++) {
        if (place[j] >= 0) continue;
        while (taken[next]) next++;
        taken[next] = true, place[j] = next;
    }
}

static void place_beam(const draft_beams_args *a, i64 i, i64 place, i32 candidate, f32 score) {
    const i64 to = i * a->k + place, b = candidate / a->k, row = i * a->beams + b, from = i * a->k + b;
    a->scores[to] = score;
    a->ids[to] = a->top_ids[row * a->k + candidate % a->k];
    a->from[to] = (i32)row;
    a->chosen[to] = candidate;
    for (i64 g = 0; g < a->copies; g++) {
        const i64 *slots = a->slots + g * a->slots_stride;
        a->pairs[g * a->n * a->k + to] = (kv_pair){from == to ? -1 : slots[from], slots[to]};
    }
}

void ref_draft_beams(const ops *o, const draft_beams_args *a) {
    (void)o;
    for (i64 i = 0; i < a->n; i++) {
        i32 best[BEAMS_MOST];
        f32 score[BEAMS_MOST];
        i64 place[BEAMS_MOST];
        best_candidates(a, i, best, score);
        beam_places(a, best, place);
        for (i64 j = 0; j < a->k; j++) place_beam(a, i, place[j], best[j], score[j]);
    }
}
