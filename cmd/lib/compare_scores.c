#include "cmd/lib/compare_scores.h"
#include "kernels/sampling/logprobs.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

f64 kl_divergence(const f32 *p, f64 p_lse, const f32 *q, f64 q_lse, i64 n) {
    f64 sum = 0;
    for (i64 i = 0; i < n; i++) {
        const f64 log_p = (f64)p[i] - p_lse, weight = exp(log_p);
        if (weight > 0) sum += weight * (log_p - ((f64)q[i] - q_lse));
    }
    return sum;
}

/* ---- the master's logits ---- */

static status open_scratch(score_run *r, u64 bytes, err *e) {
    char path[PATH_MAX], text[BYTES_TEXT];
    if (snprintf(path, sizeof path, "%s/moonlet-logits-XXXXXX", r->scratch) >= (int)sizeof path)
        return err_set(e, ST_LIMIT, "%.60s...: the path is too long", r->scratch);
    r->fd = mkostemp(path, O_CLOEXEC);
    if (r->fd < 0) return err_set(e, ST_IO, "%s: %s (--scratch DIR takes another folder)", r->scratch, strerror(errno));
    unlink(path); /* gone when it is closed, however this ends */
    const int failed = posix_fallocate(r->fd, 0, (off_t)bytes);
    if (failed)
        return err_set(e, ST_IO, "%s: %s are needed for the master's logits: %s (--scratch DIR, or fewer --tokens)",
                       r->scratch, bytes_text(text, bytes), strerror(failed));
    return ST_OK;
}

static status scratch_failed(const score_run *r, const char *what, err *e) {
    return err_set(e, ST_IO, "%s: the master's logits cannot be %s: %s", r->scratch, what,
                   errno ? strerror(errno) : "the file was cut");
}

static status keep_row(const score_run *r, const f32 *logits, err *e) {
    const u64 bytes = (u64)r->vocab * sizeof *logits;
    for (u64 at = 0; at < bytes;) {
        errno = 0;
        ssize_t n = pwrite(r->fd, (const u8 *)logits + at, bytes - at, (off_t)((u64)r->token * bytes + at));
        if (n <= 0) return scratch_failed(r, "written", e);
        at += (u64)n;
    }
    return ST_OK;
}

static status fetch_row(const score_run *r, err *e) {
    const u64 bytes = (u64)r->vocab * sizeof *r->row;
    for (u64 at = 0; at < bytes;) {
        errno = 0;
        ssize_t n = pread(r->fd, (u8 *)r->row + at, bytes - at, (off_t)((u64)r->token * bytes + at));
        if (n <= 0) return scratch_failed(r, "read", e);
        at += (u64)n;
    }
    return ST_OK;
}

/* ---- a run ---- */

status score_open(score_run *r, const documents *d, i64 vocab, i64 checkpoints, const char *scratch, err *e) {
    const size_t tokens = (size_t)d->scored, docs = (size_t)d->n;
    u64 rows, bytes;
    *r = (score_run){.docs = d, .vocab = vocab, .fd = -1, .scratch = scratch};
    progress_start(&r->shown, "", "tok", tokens * (u64)checkpoints);
    if (!mul_size(tokens, (u64)vocab, &rows) || !mul_size(rows, sizeof *r->row, &bytes))
        return err_set(e, ST_LIMIT, "%zu tokens of a vocabulary of %lld are too many", tokens, (long long)vocab);
    r->row = malloc((size_t)vocab * sizeof *r->row);
    r->lse = malloc(tokens * sizeof *r->lse);
    r->logprob = malloc(tokens * sizeof *r->logprob);
    r->best = malloc(tokens * sizeof *r->best);
    r->count = malloc(docs * sizeof *r->count);
    r->sums = malloc(SCORE_COUNT * docs * sizeof *r->sums);
    if (!r->row || !r->lse || !r->logprob || !r->best || !r->count || !r->sums)
        return err_nomem(e, "what is kept of each token", tokens * 20);
    for (i64 i = 0; i < d->n; i++) r->count[i] = (f64)(document_tokens(d, i) - d->from[i]);
    return open_scratch(r, bytes, e);
}

void score_close(score_run *r) {
    progress_end(&r->shown);
    if (r->fd >= 0) close(r->fd);
    free(r->row);
    free(r->lse);
    free(r->logprob);
    free(r->best);
    free(r->count);
    free(r->sums);
    *r = (score_run){.fd = -1};
}

void score_checkpoint(score_run *r, const char *name, bool master) {
    r->shown.what = name;
    r->master = master;
    r->token = r->document = 0;
    memset(r->sums, 0, SCORE_COUNT * (size_t)r->docs->n * sizeof *r->sums);
}

void score_document(score_run *r, i64 document) { r->document = document; }

static void add_score(score_run *r, int which, f64 x) { r->sums[which * r->docs->n + r->document] += x; }

static status score_master(score_run *r, const f32 *logits, f64 lse, f64 logprob, err *e) {
    r->lse[r->token] = lse;
    r->logprob[r->token] = logprob;
    largest_of(logits, r->vocab, &r->best[r->token], 1);
    add_score(r, SCORE_SAME, 1);
    return keep_row(r, logits, e);
}

static status score_other(score_run *r, const f32 *logits, f64 lse, f64 logprob, err *e) {
    const f64 change = logprob - r->logprob[r->token];
    i32 best;
    status st = fetch_row(r, e);
    if (st != ST_OK) return st;
    largest_of(logits, r->vocab, &best, 1);
    add_score(r, SCORE_KL, kl_divergence(r->row, r->lse[r->token], logits, lse, r->vocab));
    add_score(r, SCORE_SAME, best == r->best[r->token]);
    add_score(r, SCORE_CHANGE, change);
    add_score(r, SCORE_CHANGED, fabs(change));
    return ST_OK;
}

status score_row(void *run, i64 index, f32 *logits, err *e) {
    score_run *r = run;
    const i64 next = index + 1; /* the token that these logits are for */
    if (next < r->docs->from[r->document] || next >= document_tokens(r->docs, r->document)) return ST_OK;
    const f64 lse = log_sum_exp(logits, r->vocab);
    const f64 logprob = (f64)logits[r->docs->ids.data[r->docs->begin[r->document] + next]] - lse;
    status st = (r->master ? score_master : score_other)(r, logits, lse, logprob, e);
    add_score(r, SCORE_LOGPROB, logprob);
    r->token++;
    progress_step(&r->shown, ++r->done);
    return st;
}

void score_result(const score_run *r, compared *row) {
    mean_95 all[SCORE_COUNT];
    for (int i = 0; i < SCORE_COUNT; i++) all[i] = mean_of_clusters(r->sums + i * r->docs->n, r->count, r->docs->n);
    row->logprob = all[SCORE_LOGPROB].mean;
    row->kl = all[SCORE_KL];
    row->same = all[SCORE_SAME];
    row->change = all[SCORE_CHANGE];
    row->changed = all[SCORE_CHANGED];
}
