#include "kernels/cpu/cpu.h"
#include "base/log.h"
#include <math.h>
#include <omp.h>

int cpu_thread(void) { return omp_get_thread_num(); }

/* Rows that must be expanded to float32 have to fit the space that a thread has for them. */
static status cpu_prepare(const ops *o, const weight_desc *d, op_weight **out, err *e) {
    *out = NULL;
    for (i64 i = 0; i < d->n_views; i++) {
        const weight_view *v = &d->views[i];
        if (v->cols > CPU_EXPAND_MAX && v->format != WF_F32 && v->format != WF_BF16) {
            *out = NULL;
            return err_set(e, ST_UNSUPPORTED, "a %s matrix with %lld columns; %s takes at most %d",
                           weight_format_name(v->format), (long long)v->cols, o->name, CPU_EXPAND_MAX);
        }
    }
    return weight_host_prepare(o, d, out, e);
}

/* The gate, with each score computed once. ids[0..s) stay sorted by falling score; a later expert goes in
 * front of an earlier one only if its score is larger, so ties keep the lowest index. */
static void cpu_gate_row(const gate_args *a, const f32 *logits, i32 *ids, f32 *weights) {
    const f32 *bias = a->bias->vector;
    bool nan = false;
    i64 have = 0;
    for (i64 x = 0; x < a->n_experts; x++) { /* weights hold the scores of the chosen until the end */
        f32 score = 1.0f / (1.0f + expf(-logits[x])) + bias[x];
        nan = nan || isnan(score);
        if (have == a->k && !(score > weights[have - 1])) continue;
        i64 at = have < a->k ? have++ : have - 1;
        for (; at > 0 && score > weights[at - 1]; at--) ids[at] = ids[at - 1], weights[at] = weights[at - 1];
        ids[at] = (i32)x;
        weights[at] = score;
    }
    f32 sum = 0;
    for (i64 s = 0; s < a->k && !nan; s++) {
        weights[s] = 1.0f / (1.0f + expf(-logits[ids[s]]));
        sum += weights[s];
    }
    for (i64 s = 0; s < a->k; s++) {
        if (nan) ids[s] = (i32)s;
        weights[s] = nan ? NAN : weights[s] / (a->norm_topk ? sum + 1e-20f : 1.0f) * a->scale;
    }
}

static void gate(const ops *o, const gate_args *a) {
    (void)o;
    team tm = team_begin(128 * a->n * a->n_experts);
#pragma omp parallel for schedule(static) num_threads(tm.threads)
    for (i64 i = 0; i < a->n; i++)
        cpu_gate_row(a, a->logits + i * a->n_experts, a->ids + i * a->k, a->weights + i * a->k);
    gate_place(a);
    team_end(&tm);
}

bool cpu_multiplies(weight_format f, bool experts, u32 isa) {
    if (f == WF_F32 || f == WF_BF16) return true;
    if (weight_is_fp8(f)) return isa & ISA_BF16;
    const bool in_int8 = f == WF_INT4_GROUP || f == WF_INT4_ROW || f == WF_INT4_GROUP128 || f == WF_MXFP4 ||
                         f == WF_NVFP4 || f == WF_INT8_ROW;
    return experts && in_int8 && isa & ISA_AVX2;
}

status ops_init_cpu(ops *o, dtype act, u32 isa_mask, err *e) {
    ops_init_ref(o);
    o->int8_mean = 0;
    if (act == DT_F32) {
        log_once("cpu-f32", "float32 activations run the reference's arithmetic on the CPU");
        o->name = "cpu (reference arithmetic)";
        return ST_OK;
    }
    if (act != DT_BF16)
        return err_set(e, ST_UNSUPPORTED, "the cpu backend has no %s activations, only BF16 and F32", dtype_name(act));
    u32 isa = cpu_isa() & isa_mask;
    o->act = DT_BF16;
    o->weight_prepare = cpu_prepare;
    o->gate = gate;
    cpu_init_generic(o);
    if (!(isa & ISA_AVX2)) return ST_OK;
    cpu_init_avx2(o);
    if ((isa & ISA_AVXVNNI) && !(isa & ISA_AVX512)) cpu_init_avxvnni(o);
    if (!(isa & ISA_AVX512)) return ST_OK;
    cpu_init_avx512(o);
    if (isa & ISA_BF16) cpu_init_avx512bf16(o);
    if (isa & ISA_AMX) cpu_init_avx512amx(o);
    if (isa & ISA_VNNI) cpu_init_avx512vnni(o, isa);
    if ((isa & ISA_VNNI) && (isa & ISA_BF16) && (isa & ISA_AMX_INT8)) cpu_init_avx512amx_w4a8(o, isa);
    return ST_OK;
}
