/* cmd/check/check.c: `moonlet check`: every operation of a backend against the reference. */
#include "cmd/check/check.h"
#include "base/log.h"
#include "cmd/check/check_determinism.h"
#include "cmd/check/check_mirror.h"
#include "cmd/check/check_int64.h"
#include "cmd/cmd.h"
#include "format/requant.h"
#include "kernels/backend.h"
#include "kernels/gpu/gpu.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name;
    void (*run)(check *c);
} all_ops[] = {
    {"embed", check_embed},
    {"norm", check_norm},
    {"linear", check_linear},
    {"swiglu", check_swiglu},
    {"linear_group", check_linear_group},
    {"rope", check_rope},
    {"kv_write", check_kv_write},
    {"latent_norm_kv_write", check_latent_norm_kv_write},
    {"absorb_q", check_absorb_q},
    {"mla_queries", check_mla_queries},
    {"mla_decode", check_mla_decode},
    {"unabsorb_v", check_unabsorb_v},
    {"mla_prefill", check_mla_prefill},
    {"gate", check_gate},
    {"moe", check_moe},
    {"gather", check_gather},
    {"mark_nonfinite", check_mark_nonfinite},
    {"sample", check_sample},
    {"logprobs", check_logprobs},
    {"linear_norm", check_linear_norm},
    {"mla_decode_values", check_mla_decode_values},
    {"moe_norm", check_moe_norm},
    {"moe_ffn", check_moe_ffn},
    {"heads_write", check_heads_write},
    {"heads_decode", check_heads_decode},
    {"kv_copy", check_kv_copy},
    {"draft_beams", check_draft_beams},
    {"pixel_rows", check_pixel_rows},
    {"patch_position", check_patch_position},
    {"layer_norm", check_layer_norm},
    {"bias_act", check_bias_act},
    {"vision_rope", check_vision_rope},
    {"vision_attention", check_vision_attention},
    {"patch_merge", check_patch_merge},
    {"sum_pairs", check_sum_pairs},
};

static const char *const levels[] = {"none", "avx2", "avxvnni", "avx512", "vnni", "bf16", "noamx", "all"};

enum { CANARY = 64 }; /* bytes at either end */

void check_fail(check *c, const char *fmt, ...) {
    if (!c->failed) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(c->why, sizeof c->why, fmt, ap);
        va_end(ap);
    }
    c->failed = true;
}

u64 check_block_bytes(u64 bytes) { return (bytes + 2 * CANARY + 63) & ~(u64)63; }

void *check_alloc(check *c, u64 bytes) {
    u64 all = check_block_bytes(bytes);
    u8 *p = aligned_alloc(64, all);
    if (!p || c->n_blocks == (int)COUNT_OF(c->blocks)) {
        fprintf(stderr, "moonlet check: out of memory (%llu bytes)\n", (unsigned long long)bytes);
        exit(1);
    }
    memset(p, 0x5a, all);
    c->blocks[c->n_blocks++] = (check_block){p, bytes};
    return p + CANARY;
}

void *check_copy(check *c, const void *from, u64 bytes) { return memcpy(check_alloc(c, bytes), from, bytes); }

check_act check_input(check *c, i64 n, f32 sigma) {
    check_act a = {check_alloc(c, (u64)n * 2), check_alloc(c, (u64)n * 4)};
    synth_fill_bf16(&c->rng, a.h, n, sigma);
    for (i64 i = 0; i < n; i++) a.f[i] = bf16_to_f32(a.h[i]);
    return a;
}

check_act check_output(check *c, i64 n) { return (check_act){check_alloc(c, (u64)n * 2), check_alloc(c, (u64)n * 4)}; }

bool check_rounds(const check *c, weight_format f) { return c->copies && linear_on_gpu(f) != f; }

check_weight check_prepare(check *c, weight_desc d) {
    check_weight w = {0};
    err e = {0};
    const ops *const both[] = {c->dev, c->ref};
    weight_view rounded;
    for (i64 i = 0; i < d.n_views; i++) w.bytes += weight_bytes(&d.views[i]);
    for (int i = 0; i < 2; i++) {
        if (i && d.kind != WK_EXPERTS && check_rounds(c, d.views->format)) {
            rounded = requant_bf16(d.views, check_alloc(c, (u64)(d.views->rows * d.views->cols) * sizeof(bf16)));
            d.views = &rounded;
        }
        op_weight **out = i ? &w.ref : &w.dev;
        if (both[i]->weight_prepare(both[i], &d, out, &e) != ST_OK) {
            fprintf(stderr, "moonlet check: %s\n", e.text);
            exit(1);
        }
        c->owner[c->n_weights] = both[i];
        c->weights[c->n_weights++] = *out;
    }
    return w;
}

check_weight check_matrix(check *c, weight_kind kind, weight_format f, i64 rows, i64 cols, f32 sigma) {
    weight_view v = synth_weight(&c->rng, f, rows, cols, sigma, check_alloc(c, synth_weight_bytes(f, rows, cols)));
    return check_prepare(c, (weight_desc){.kind = kind, .views = &v, .n_views = 1});
}

void check_compare(check *c, const char *what, const void *got, dtype t, const f32 *want, i64 n, i64 dim, i64 stride,
                   f64 bound) {
    f32 *a = malloc((u64)(n * dim) * 4), *b = malloc((u64)(n * dim) * 4);
    if (!a || !b) exit(1);
    for (i64 i = 0; i < n; i++) {
        for (i64 k = 0; k < dim; k++) {
            i64 at = i * stride + k;
            a[i * dim + k] = t == DT_F32 ? ((const f32 *)got)[at] : bf16_to_f32(((const bf16 *)got)[at]);
            b[i * dim + k] = want[at];
        }
        for (i64 k = dim; k < stride && i + 1 < n; k++) {
            i64 at = i * stride + k;
            u32 bits = t == DT_F32 ? ((const u32 *)got)[at] : ((const u16 *)got)[at] | 0x5a5a0000u;
            if (bits != 0x5a5a5a5au)
                check_fail(c, "%s: wrote between rows %lld and %lld", what, (long long)i, (long long)i + 1);
        }
    }
    f64 error = relative_error(a, b, n * dim);
    if (!(error <= bound))
        check_fail(c, "%s [%lld, %lld]: error %.2e, bound %.1e", what, (long long)n, (long long)dim, error, bound);
    if (!(error <= c->worst)) c->worst = error;
    if (bound > c->bound) c->bound = bound;
    c->cases++;
    free(a);
    free(b);
}

/* One step of bf16, or, where large terms have cancelled, 2^-14 of the row's largest. */
static bool same_but_rounding(bf16 a, bf16 b, f32 largest) {
    const f32 x = bf16_to_f32(a), y = bf16_to_f32(b);
    return fabsf(x - y) <= fmaxf(0x1p-7f * fmaxf(fabsf(x), fabsf(y)), 0x1p-14f * largest);
}

static void check_rows_but(check *c, const char *what, const bf16 *a, const bf16 *b, i64 n, i64 dim, i64 bad,
                           bool rounding) {
    bool marked = false;
    for (i64 i = 0; i < n; i++) {
        f32 largest = 0;
        for (i64 d = 0; d < dim; d++) largest = fmaxf(largest, fabsf(bf16_to_f32(a[i * dim + d])));
        for (i64 d = 0; d < dim; d++) {
            const bf16 x = a[i * dim + d], y = b[i * dim + d];
            if (i == bad) {
                marked = marked || (y & 0x7f80) == 0x7f80;
            } else if (x != y && !(rounding && same_but_rounding(x, y, largest))) {
                check_fail(c, "%s: a NaN in row %lld changed row %lld", what, (long long)bad, (long long)i);
                return;
            }
        }
    }
    if (!marked) check_fail(c, "%s: a NaN in row %lld vanished", what, (long long)bad);
    c->cases++;
}

void check_isolated(check *c, const char *what, const bf16 *a, const bf16 *b, i64 n, i64 dim, i64 bad) {
    check_rows_but(c, what, a, b, n, dim, bad, false);
}

void check_isolated_but_order(check *c, const char *what, const bf16 *a, const bf16 *b, i64 n, i64 dim, i64 bad) {
    check_rows_but(c, what, a, b, n, dim, bad, true);
}

bool check_emulated(const check *c) { return c->copies && strstr(c->dev->name, "emulated"); }

bool check_on_gpu(const check *c) { return c->copies && !check_emulated(c); }

void check_speed(check *c, f64 seconds, u64 bytes) {
    f64 rate = (f64)bytes / seconds / 1e9;
    if (rate > c->gb_s && !c->copies) c->gb_s = rate;
}

void check_case_end(check *c) {
    for (int i = 0; i < c->n_blocks; i++) {
        const check_block *b = &c->blocks[i];
        for (int k = 0; k < CANARY; k++)
            if (b->p[k] != 0x5a || b->p[CANARY + b->bytes + (u64)k] != 0x5a) {
                check_fail(c, "wrote outside a block of %llu bytes", (unsigned long long)b->bytes);
                break;
            }
        free(b->p);
    }
    c->n_blocks = 0;
    for (int i = 0; i < c->n_weights; i++) c->owner[i]->weight_release(c->weights[i]);
    c->n_weights = 0;
}

/* Runs one op of a backend; prints its line. dev is c's when its calls copy their memory. */
static bool run_one(check *c, const ops *ref, const ops *dev, bool copies, size_t op) {
    const bool prompts = c->prompts;
    memset(c, 0, sizeof *c);
    c->prompts = prompts;
    ops same = *ref;
    same.int8_mean = dev->int8_mean;
    c->ref = &same;
    c->dev = dev;
    c->copies = copies;
    c->rng.state = 1000 + op;
    char speed[32];
    f64 start = now_s();
    all_ops[op].run(c);
    check_case_end(c);
    /* memory that is copied to and fro says nothing of speed */
    if (copies)
        snprintf(speed, sizeof speed, "%7.1f s  ", now_s() - start);
    else
        snprintf(speed, sizeof speed, "%7.2f GB/s  ", c->gb_s);
    printf("%-24s %-20s %4lld cases  from ref %8.2e  bound %7.1e  %s%s%s%s\n", dev->name, all_ops[op].name,
           (long long)c->cases, c->worst, c->bound, speed, c->failed ? "FAIL" : "PASS", c->failed ? ": " : "",
           c->failed ? c->why : "");
    fflush(stdout);
    c->ref = ref;
    return !c->failed;
}

/* Is `name` among the names of "a,b,c"? */
static bool check_listed(const char *list, const char *name) {
    for (size_t n = strlen(name); list; list = strchr(list, ',')) {
        list += *list == ',';
        if (!strncmp(list, name, n) && (!list[n] || list[n] == ',')) return true;
    }
    return false;
}

/* Does "a,b,c" name operations only? Otherwise it is said which word is none. */
static bool known_ops(const char *option, const char *list) {
    for (const char *at = list; at;) {
        size_t n = strcspn(at, ",");
        bool known = false;
        for (size_t i = 0; i < COUNT_OF(all_ops); i++)
            known = known || (strlen(all_ops[i].name) == n && !strncmp(all_ops[i].name, at, n));
        if (!known) {
            fprintf(stderr, "moonlet check: %s \"%.*s\" is no operation; there are:", option, (int)n, at);
            for (size_t i = 0; i < COUNT_OF(all_ops); i++) fprintf(stderr, " %s", all_ops[i].name);
            fprintf(stderr, "\n");
            return false;
        }
        at = at[n] ? at + n + 1 : NULL;
    }
    return true;
}

typedef struct {
    const char *only, *without, *mask_name; /* NULL: all; none; all */
    ops ref;
    check *c;
    bool deterministic;
    i64 passed, failed, skipped;
} checks;

/* Draws, log-probabilities and what trees of guesses need on a host are the reference's own functions: there is nothing
 * to hold against them (tests/unit/runtime/test_sampler.c and tests/unit/kernels/test_beams.c test them). */
static bool is_refs_own(const ops *ref, const ops *dev, size_t op) {
    return (all_ops[op].run == check_sample && dev->sample == ref->sample) ||
           (all_ops[op].run == check_logprobs && dev->logprobs == ref->logprobs) ||
           (all_ops[op].run == check_kv_copy && dev->kv_copy == ref->kv_copy) ||
           (all_ops[op].run == check_draft_beams && dev->draft_beams == ref->draft_beams);
}

static void check_run_all(checks *k, const ops *dev, bool copies, bool here) {
    for (size_t i = 0; i < COUNT_OF(all_ops); i++) {
        if (k->only && !check_listed(k->only, all_ops[i].name)) continue;
        if (check_listed(k->without, all_ops[i].name)) continue;
        bool own = here && is_refs_own(&k->ref, dev, i);
        if (own) printf("%-24s %-20s the reference's own function, skipped\n", dev->name, all_ops[i].name);
        if (!here || own)
            k->skipped++;
        else if (run_one(k->c, &k->ref, dev, copies, i))
            k->passed++;
        else
            k->failed++;
    }
}

/* Without --cpu-mask "all" is run only where it is more than the best level before it. */
static status check_cpu(checks *k, err *e) {
    const char *best = NULL;
    for (size_t l = 0; l < COUNT_OF(levels); l++) {
        u32 mask;
        ops dev;
        status st = cpu_isa_parse(levels[l], &mask, e);
        if (st != ST_OK) return st;
        bool all = !strcmp(levels[l], "all"), here = all || (cpu_isa() & mask) == mask;
        if (!all && mask == cpu_isa()) best = levels[l];
        if (k->mask_name && strcmp(k->mask_name, levels[l])) continue;
        if (all && best && !k->mask_name) {
            printf("cpu all: the same as %s here\n", best);
            continue;
        }
        st = ops_init_cpu(&dev, DT_BF16, mask, e);
        if (st != ST_OK) return st;
        check_run_all(k, &dev, false, here);
        if (!here) printf("skipped: cpu %s is not on this processor\n", levels[l]);
    }
    return ST_OK;
}

static status check_large_cuda(checks *k, err *e) {
    backend gpu;
    int passed = 0, failed = 0;
    status st = backend_open(&gpu, &(backend_options){.name = "cuda", .act = DT_BF16}, e);
    if (st == ST_OK) st = check_large(&gpu.ops, gpu.device, &passed, &failed, e);
    backend_close(&gpu);
    k->passed += passed;
    k->failed += failed;
    return st == ST_OK ? ST_OK : err_prefix(e, "--large");
}

static status check_cuda(checks *k, err *e) {
    backend gpu;
    ops dev;
    status st = backend_open(&gpu, &(backend_options){.name = "cuda", .act = DT_BF16}, e);
    static const row_mode any[] = {ROWS_ANY}, both[] = {ROWS_DECODE, ROWS_PROMPT};
    static const char *const names[] = {"", "rows that decode", "rows of prompts"};
    for (int i = 0; st == ST_OK && i < (k->deterministic ? 2 : 1); i++) {
        row_mode form = (k->deterministic ? both : any)[i];
        check_mirror(&dev, &gpu.ops, gpu.device, k->c);
        gpu.ops.set_row_mode(&gpu.ops, form);
        k->c->prompts = form == ROWS_PROMPT;
        if (form != ROWS_ANY) printf("%s:\n", names[form]);
        check_run_all(k, &dev, true, true);
        st = gpu.device->finish(gpu.device, e);
        if (st != ST_OK) err_prefix(e, "--device cuda");
    }
    backend_close(&gpu);
    return st;
}

int cmd_check(int argc, char **argv) {
    const char *device = "cpu";
    static check c; /* large */
    checks k = {.c = &c};
    i64 threads = 0;
    bool large = false;
    const opt_spec specs[] = {
        {"device", 0, OPT_ENUM, &device, "cpu|cuda", "backend held against ref (default: cpu)", 0, 0},
        {"op", 0, OPT_STR, &k.only, "NAME,...", "these operations only", 0, 0},
        {"not-op", 0, OPT_STR, &k.without, "NAME,...", "all but these operations", 0, 0},
        {"cpu-mask", 0, OPT_ENUM, &k.mask_name, "none|avx2|avxvnni|avx512|vnni|bf16|noamx|all",
         "one instruction set only (default: each that this processor has)", 0, 0},
        {"large", 0, OPT_FLAG, &large, NULL, "cuda: tensors of more than 2^31 elements instead (50 GB)", 0, 0},
        {"deterministic", 0, OPT_FLAG, &k.deterministic, NULL,
         "cuda: the kernels of --deterministic, for rows that decode and for rows of prompts", 0, 0},
        {"threads", 't', OPT_INT, &threads, "N", "CPU threads (default: all cores)", 0, 4096},
    };
    if (argc > 1 && !strcmp(argv[1], "bits")) return cmd_check_bits(argc - 1, argv + 1);
    int done = cmd_options("check", "[bits] [options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (done >= 0) return done;
    err e = {0};
    if (!known_ops("--op", k.only) || !known_ops("--not-op", k.without)) return EXIT_USAGE;
    bool on_gpu = !strcmp(device, "cuda");
    if (on_gpu && k.mask_name) {
        fprintf(stderr, "moonlet check: --cpu-mask is for --device cpu\n");
        return EXIT_USAGE;
    }
    if (large && (!on_gpu || k.only || k.without)) {
        fprintf(stderr, "moonlet check: --large goes with --device cuda, without --op and --not-op\n");
        return EXIT_USAGE;
    }
    if (k.deterministic && !on_gpu) {
        fprintf(stderr, "moonlet check: --deterministic is for --device cuda: on the CPU it always holds\n");
        return EXIT_USAGE;
    }
    ops_set_threads((int)threads);
    log_set_quiet(true);
    ops_init_ref(&k.ref);
    status (*run)(checks *, err *) = large ? check_large_cuda : on_gpu ? check_cuda : check_cpu;
    if (run(&k, &e) != ST_OK) return cmd_fail("check", &e);
    printf("%lld passed, %lld failed, %lld skipped\n", (long long)k.passed, (long long)k.failed, (long long)k.skipped);
    return k.failed ? EXIT_FAULT : EXIT_DONE;
}
