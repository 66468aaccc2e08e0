/* cmd/bench/moe/bench_moe_report.c: the line that `moonlet bench moe` prints for a shape, and the same as JSON. */
#include "cmd/bench/moe/bench_moe.h"
#include "kernels/gpu/moe/moe_select.h"
#include <math.h>

/* As JSON has it: null where it is none. */
static const char *moe_report_number(f64 v, char out[32]) {
    snprintf(out, 32, isfinite(v) ? "%.6e" : "null", v);
    return out;
}

enum { TEXT = 128 };
/* " (12 % of WHAT)"; nothing where the peak is not known. */
static const char *share(f64 v, f64 peak, const char *what, char out[TEXT]) {
    out[0] = 0;
    if (peak > 0) snprintf(out, TEXT, " (%.0f %% of %s)", 100 * v / peak, what);
    return out;
}

/* What there is to say of errors beside the two figures. */
static const char *remarks(const bench_state *b, const moe_error error[2], char out[2 * TEXT]) {
    out[0] = 0;
    if (error[0].odd)
        snprintf(out, 2 * TEXT, "; %lld of these rows' %lld values NOT FINITE, %lld of them in one of the two alone",
                 (long long)error[0].odd, (long long)(error[0].rows * b->o.dim), (long long)error[0].alone);
    return out;
}

static u64 expert_bytes(const bench_state *b) {
    u64 bytes = 0;
    for (i64 i = 0; i < 3; i++) {
        weight_view v = b->views[i];
        v.format = expert_stored_as(b->experts, v.format, i);
        bytes += weight_bytes(&v);
    }
    return bytes;
}

/* Are products of int8? On a processor those of formats of four bits and of INT8, which give x int8 (docs/kernels/
 * moe-cpu.md). */
static bool in_int8(const bench_state *b, const shape_data *d) {
    if (b->g) return b->wf == WF_INT4_GROUP && moe_in_int8(b, d);
    return weight_layout_of(b->wf)->bits == 4 || b->wf == WF_INT8_ROW;
}

void moe_report(const bench_state *b, const shape_data *d, f64 median, f64 best, const moe_error error[2]) {
    const bench_opts *o = &b->o;
    const machine_peaks *m = &b->peaks;
    f64 bytes = (f64)d->touched * (f64)expert_bytes(b);
    f64 work = 6.0 * (f64)(d->n * o->topk) * (f64)(o->dim * o->inter);
    const bool int8 = m->int8 > 0 && in_int8(b, d);
    f64 peak = int8 ? m->int8 : m->bf16 > 0 ? m->bf16 : m->f32;
    const char *kind = int8 ? "int8" : m->bf16 > 0 ? "bf16" : "fp32";
    char how[MOE_CHOICE_TEXT] = "", read[32], of_read[TEXT], of_work[TEXT], more[2 * TEXT], e[4][32];
    moe_args call = moe_shape_args(b, d, 0);
    if (b->g) moe_choice_text(gpu_moe_choice(b->dev, &call), how);
    snprintf(read, sizeof read, "%.1f", m->read / 1e9);
    printf(
        "%5lld tokens, %lld x %lld, top-%lld of %lld (%lld touched, %s), %s: %9.4f ms (best %.4f)  %6.2f GB/s%s  "
        "%.3f T/s%s  error %.2e against the weights as given, %.2e against ref in the same arithmetic (with outliers "
        "%.2e, %.2e) on %lld rows%s%s%s\n",
        (long long)d->n, (long long)o->dim, (long long)o->inter, (long long)o->topk, (long long)o->experts,
        (long long)d->touched, o->ids ? "given" : o->routing, o->format, median * 1e3, best * 1e3, bytes / median / 1e9,
        share(bytes / median, m->read, read, of_read), work / median / 1e12, share(work / median, peak, kind, of_work),
        error[0].given, error[0].contract, error[1].given, error[1].contract, (long long)error[0].rows,
        remarks(b, error, more), how[0] ? "  " : "", how);
    fflush(stdout);
    if (!b->json) return;
    snprintf(of_work, sizeof of_work, peak > 0 ? "\"%s\"" : "null", kind);
    fprintf(
        b->json,
        "{\"bench\":\"moe\",\"device\":\"%s\",\"format\":\"%s\",\"tokens\":%lld,\"dim\":%lld,\"inter\":%lld,"
        "\"experts\":%lld,\"topk\":%lld,\"routing\":\"%s\",\"touched\":%lld,\"ms_median\":%.6f,\"ms_min\":%.6f,\"gb_s\":%.3f,"
        "\"read_gb_s\":%.3f,\"tops\":%.5f,\"peak_tops\":%.5f,\"peak_kind\":%s,\"error\":%s,\"error_outliers\":%s,"
        "\"error_given\":%s,\"error_given_outliers\":%s,\"error_rows\":%lld,\"not_finite\":%lld,\"not_finite_alone\":%lld,"
        "\"synthetic\":%s,\"choice\":\"%s\"}\n",
        b->dev->name, o->format, (long long)d->n, (long long)o->dim, (long long)o->inter, (long long)o->experts,
        (long long)o->topk, o->ids ? "given" : o->routing, (long long)d->touched, median * 1e3, best * 1e3,
        bytes / median / 1e9, m->read / 1e9, work / median / 1e12, peak / 1e12, of_work,
        moe_report_number(error[0].contract, e[0]), moe_report_number(error[1].contract, e[1]),
        moe_report_number(error[0].given, e[2]), moe_report_number(error[1].given, e[3]), (long long)error[0].rows,
        (long long)error[0].odd, (long long)error[0].alone, o->w1 ? "false" : "true", how);
}
