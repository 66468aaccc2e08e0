/* cmd/check/check.h: pieces of `moonlet check`: memory with canaries, equal inputs for two backends, comparison. */
#ifndef CMD_CHECK_CHECK_H
#define CMD_CHECK_CHECK_H
#include "kernels/fused.h"
#include "cmd/lib/synthetic.h"

typedef struct {
    u8 *p;
    u64 bytes;
} check_block;

/* One op on one backend: cases add to it, a failure keeps its first reason. */
typedef struct {
    const ops *ref, *dev;
    synth rng;
    f64 worst, bound, gb_s; /* largest error, what it may be, speed of the largest case */
    i64 cases;
    bool failed;
    bool copies;  /* calls copy their memory to and fro: speeds mean nothing */
    bool prompts; /* the kernels of rows of prompts, under --deterministic */
    char why[240];
    check_block blocks[64]; /* memory of the current case */
    int n_blocks;
    op_weight *weights[32]; /* of both backends, released with the case */
    int n_weights;
    const ops *owner[32];
} check;

/* The same values for dev (bf16) and ref (float32). */
typedef struct {
    bf16 *h;
    f32 *f;
} check_act;

typedef struct {
    op_weight *dev, *ref;
    u64 bytes;
} check_weight;

void check_fail(check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void *check_alloc(check *c, u64 bytes);                  /* filled with 0x5a, canaries at both ends */
void *check_copy(check *c, const void *from, u64 bytes); /* the same with a content */
u64 check_block_bytes(u64 bytes);                        /* what it allocates for them */
check_act check_input(check *c, i64 n, f32 sigma);
check_act check_output(check *c, i64 n);
/* Does dev keep matrices of this format that are no experts' in bf16? */
bool check_rounds(const check *c, weight_format f);
/* ref's values are those that dev multiplies with: rounded to bf16 where dev rounds them. */
check_weight check_prepare(check *c, weight_desc d);
/* One matrix of a format, elements of deviation `sigma`. */
check_weight check_matrix(check *c, weight_kind kind, weight_format f, i64 rows, i64 cols, f32 sigma);
check_weight check_kv_b(check *c, weight_format f, i64 heads, i64 nope, i64 v_dim, i64 latent);
/* Compares n rows of `dim` elements, `stride` apart, of dev's `got` (type t) with ref's; what lies between
 * the rows must be untouched. The error counts against `bound`. */
void check_compare(check *c, const char *what, const void *got, dtype t, const f32 *want, i64 n, i64 dim, i64 stride,
                   f64 bound);
/* Pools of a KV cache, in check_attention.c: `pages` pages of one layer, every element set; an element as float32; n of
 * them as float32, for ref, where dev reads type t; one made NaN. */
enum { CHECK_KV_TYPES = 3 };
extern const dtype check_kv_types[CHECK_KV_TYPES];
void *check_kv_pool(check *c, dtype t, i64 pages, i64 width);
f32 check_kv_value(const void *kv, dtype t, i64 i);
void *check_kv_widen(check *c, const void *kv, dtype t, i64 n);
void check_kv_set_bad(void *kv, dtype t, i64 at);
/* Rows other than `bad` must be the same bytes in a and b; row `bad` of b must hold a NaN or infinity. */
void check_isolated(check *c, const char *what, const bf16 *a, const bf16 *b, i64 n, i64 dim, i64 bad);
/* The same of kernels whose sums of a row have an order that depends on the other rows (decode_fused.cuh: which warp
 * has an expert's block): they may differ by a rounding. */
void check_isolated_but_order(check *c, const char *what, const bf16 *a, const bf16 *b, i64 n, i64 dim, i64 bad);
/* dev is the emulated GPU, whose kernels run as C++ on this processor. */
bool check_emulated(const check *c);
/* dev is a GPU, not the emulated one: what takes ref seconds is for it alone. */
bool check_on_gpu(const check *c);
/* Of a call of experts: 1e-2 where activations are quantised (INT4 experts with VNNI), else bf16's bound. */
f64 check_moe_bound(const check *c, weight_format f);
void check_speed(check *c, f64 seconds, u64 bytes);
void check_case_end(check *c); /* looks at the canaries, frees the case */

enum { CHECK_BAD = 0x7fc0 }; /* a NaN in bf16 */

/* The ops, in cmd/check_*.c. */
void check_embed(check *c);
void check_norm(check *c);
void check_linear(check *c);
void check_linear_norm(check *c);
void check_swiglu(check *c);
void check_linear_group(check *c);
void check_rope(check *c);
void check_kv_write(check *c);
void check_latent_norm_kv_write(check *c);
void check_mla_queries(check *c);
void check_absorb_q(check *c);
void check_unabsorb_v(check *c);
void check_mla_decode_values(check *c);
void check_mla_decode(check *c);
void check_mla_prefill(check *c);
void check_heads_write(check *c);
void check_heads_decode(check *c);
void check_kv_copy(check *c);
void check_draft_beams(check *c);
void check_gate(check *c);
void check_moe(check *c);
void check_moe_norm(check *c);
void check_moe_ffn(check *c);
void check_gather(check *c);
void check_sum_pairs(check *c);
void check_mark_nonfinite(check *c);
void check_sample(check *c);
void check_logprobs(check *c);
void check_pixel_rows(check *c);
void check_patch_position(check *c);
void check_layer_norm(check *c);
void check_bias_act(check *c);
void check_vision_rope(check *c);
void check_vision_attention(check *c);
void check_patch_merge(check *c);

/* What results in bf16 may be away from the reference, relative to their size (check_compare). */
#define CHECK_BF16_BOUND 4e-3

#endif
