/* kernels/cpu/cpu.h: the pieces of the cpu backend.
 *
 * The same sources (*_tmpl.h) are compiled once per instruction set on top of a small vector layer (vec_*.h);
 * each level overwrites the slots of the one before. All arithmetic is float32 on bf16 activations, with one
 * rounding when a result is stored. The order of every sum depends on the row alone: one accumulator (a
 * vector over K, or one lane) per result whatever the tile, so results are the same bits for every batch,
 * chunk and thread count. */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H
#include "kernels/team.h"
#include "kernels/weight_host.h"

/* A body that is copied into its callers, where its counts are constants. Where sanitizers watch only the one that
 * nearly all time is spent in: all such copies with a check an access take minutes to compile. */
#define INLINE_ALWAYS static inline __attribute__((always_inline))
#ifdef SANITIZED
#define INLINE static inline
#else
#define INLINE INLINE_ALWAYS
#endif

/* Longest row of a weight that must be expanded (FP8, INT4): a thread's stack holds this many floats. */
enum { CPU_EXPAND_MAX = 65536 };

int cpu_thread(void); /* number of the calling thread inside a region */
static inline u64 cpu_round64(u64 n) { return (n + 63) & ~(u64)63; }

/* Each fills the slots that its instruction set makes better. */
void cpu_init_generic(ops *o);
void cpu_init_avx2(ops *o);
void cpu_init_avx512(ops *o); /* F, BW, VL, DQ */
void cpu_init_avx512bf16(ops *o);
void cpu_init_avx512amx(ops *o); /* and bf16 */
/* Experts with int8 activations, if the call is one: returns false, a workspace of 0 bytes where it is not. Without
 * vector instructions W4A8 alone, by ref's arithmetic (w4a8_generic.c); with AVX-512's. */
bool cpu_generic_moe_in_int8(const ops *o, const moe_args *a);
u64 cpu_generic_moe_in_int8_workspace(const ops *o, const moe_args *a);
bool cpu_avx512_moe_in_int8(const ops *o, const moe_args *a);
u64 cpu_avx512_moe_in_int8_workspace(const ops *o, const moe_args *a);
/* W4A8 (ops.h, at moe_args) at any number of tokens: in shapes that ops.h has it for. */
static inline bool cpu_in_w4a8(const ops *o, const moe_args *a) {
    const weight_view *v = a->experts->views;
    return a->experts->int8 && moe_is_int8(o->int8_mean, a->n * a->k, a->experts->n_views / 3, v->cols, v->rows);
}
/* Of this by AMX's tiles where an expert has many tokens; with AVX-512 VNNI. */
void cpu_init_avx512amx_w4a8(ops *o, u32 isa);
/* Experts of four and eight bits by the byte products of VNNI; other formats go on to the slot that was there before:
 * that of avx2; of avx512amx, of avx512bf16 or of avx512. */
void cpu_init_avxvnni(ops *o);
void cpu_init_avx512vnni(ops *o, u32 isa);

/* Loops of multiplies and adds from registers (peak.h); each returns how many it did. */
f64 cpu_loop_int8(void);
f64 cpu_loop_bf16(void);
f64 cpu_loop_amx(void);
f64 cpu_loop_amx_int8(void);
f64 cpu_loop_f32x16(void);
f64 cpu_loop_f32x8(void);

#endif
