/* kernels/cpu/avx512amx_ops.c: level amx: dense products of bf16 and latent attention by tiles. Other operations,
 * formats and shapes are those of the level below. */
#include "kernels/cpu/cpu.h"
#include <pthread.h>
/* Of what is compiled per level this one uses a part; the rest does not get into the program. */
#pragma GCC diagnostic ignored "-Wunused-function"
#define VEC_AMX
#include "kernels/cpu/vec_avx512.h"
#include "kernels/cpu/dot_tmpl.h"
#include "kernels/cpu/dense_tmpl.h"
#include "kernels/cpu/attn_tmpl.h"
#include "kernels/cpu/prefill_amx_tmpl.h"
#include "kernels/cpu/decode_amx_tmpl.h"

static ops below;

static bool is_bf16(const op_weight *w) { return w->views[0].format == WF_BF16; }

static void amx_linear(const ops *o, const linear_args *a) { (is_bf16(a->w) ? linear : below.linear)(o, a); }
static void amx_swiglu(const ops *o, const swiglu_args *a) {
    (is_bf16(a->gate) && is_bf16(a->up) ? swiglu : below.swiglu)(o, a);
}
static void amx_unabsorb_v(const ops *o, const unabsorb_v_args *a) {
    (is_bf16(a->kv_b) ? unabsorb_v : below.unabsorb_v)(o, a);
}
static void amx_mla_prefill(const ops *o, const mla_prefill_args *a) {
    prefill_in_tiles(a) ? tiled_prefill(a) : below.mla_prefill(o, a);
}
static void amx_mla_decode(const ops *o, const mla_decode_args *a) {
    decode_in_tiles(a) ? tiled_decode(a) : below.mla_decode(o, a);
}

/* The larger of both: which it will be hangs on the cache's type. */
static u64 amx_prefill_workspace(const ops *o, const mla_prefill_args *a) {
    const u64 tiled = tiled_space(a, NULL, NULL) * (u64)team_max(), other = below.mla_prefill_workspace(o, a);
    return tiled > other ? tiled : other;
}
static u64 amx_decode_workspace(const ops *o, const mla_decode_args *a) {
    const u64 tiled = tiled_decode_workspace(a), other = below.mla_decode_workspace(o, a);
    return tiled > other ? tiled : other;
}

void cpu_init_avx512amx(ops *o) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER; /* engines may be opened by several threads */
    pthread_mutex_lock(&once);
    if (!below.linear) below = *o;
    pthread_mutex_unlock(&once);
    o->name = "cpu avx512 amx";
    o->linear = amx_linear;
    o->swiglu = amx_swiglu;
    o->unabsorb_v = amx_unabsorb_v;
    o->mla_prefill = amx_mla_prefill;
    o->mla_decode = amx_mla_decode;
    o->mla_prefill_workspace = amx_prefill_workspace;
    o->mla_decode_workspace = amx_decode_workspace;
}
