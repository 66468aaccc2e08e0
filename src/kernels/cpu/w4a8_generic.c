/* kernels/cpu/w4a8_generic.c: W4A8 without vector instructions: ref's arithmetic on copies in float32. */
#include "kernels/cpu/cpu.h"

/* Copies of x and the shared expert's output, results, and ref's own workspace. */
static u64 w4a8_copies(const moe_args *a) { return (u64)(a->n * a->experts->views[0].cols) * sizeof(f32); }

u64 cpu_generic_moe_in_int8_workspace(const ops *o, const moe_args *a) {
    ops ref;
    ops_init_ref(&ref);
    return cpu_in_w4a8(o, a) ? 3 * cpu_round64(w4a8_copies(a)) + ref.moe_workspace(&ref, a) : 0;
}

static void w4a8_floats(const bf16 *from, i64 n, f32 *to) {
    for (i64 i = 0; i < n; i++) to[i] = bf16_to_f32(from[i]);
}

bool cpu_generic_moe_in_int8(const ops *o, const moe_args *a) {
    if (!cpu_in_w4a8(o, a)) return false;
    const i64 all = a->n * a->experts->views[0].cols;
    const u64 apart = cpu_round64(w4a8_copies(a));
    u8 *at = a->workspace;
    f32 *x = (f32 *)at, *shared = (f32 *)(at + apart), *out = (f32 *)(at + 2 * apart);
    w4a8_floats(a->x, all, x);
    if (a->shared) w4a8_floats(a->shared, all, shared);
    moe_args in_floats = *a;
    in_floats.x = x, in_floats.out = out, in_floats.workspace = at + 3 * apart;
    if (a->shared) in_floats.shared = shared;
    ops ref;
    ops_init_ref(&ref);
    ref.int8_mean = o->int8_mean;
    ref.moe(&ref, &in_floats);
    for (i64 i = 0; i < all; i++) ((bf16 *)a->out)[i] = f32_to_bf16(out[i]);
    return true;
}
