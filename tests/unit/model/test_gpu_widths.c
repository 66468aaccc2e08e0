/* A model whose heads are wider than the GPU's kernels is refused before anything of it is read. No GPU is needed. */
#include "unit.h"

#include "kernels/gpu/backend.h"
#include "model/forward.h"
#include <stdio.h>
#include <string.h>

/* Opens a model without a checkpoint, which is asked for only if the widths fit. */
static void refused(ops_widths w, const char *part) {
    ops o;
    err e = {0};
    model *m = NULL;
    model_config c = {.kv_lora = w.latent, .nope = w.nope, .rope = w.rope, .v_dim = w.v_dim};
    ops_init_ref(&o);
    o.fits = gpu_op_fits;
    assert_int_equal(model_open(&m, &c, NULL, &o, device_host(), &e), ST_UNSUPPORTED);
    assert_null(m);
    if (!strstr(e.text, part)) fail_msg("\"%s\" lacks \"%s\"", e.text, part);
}

static void fits(ops_widths w) {
    err e = {0};
    if (gpu_op_fits(NULL, &w, &e) != ST_OK) fail_msg("%s", e.text);
}

/* The limits by hand: 232,448 bytes a block. Decoding: 160 (latent + rope) + 512; prompts: 160 (nope + rope) + 128 v
 * + 2304. */
static void widths_of_attention(void **state) {
    (void)state;
    fits((ops_widths){.latent = 512, .nope = 128, .rope = 64, .v_dim = 128}); /* Kimi's */
    fits((ops_widths){.latent = 512, .nope = 1, .rope = 937, .v_dim = 1});
    fits((ops_widths){.latent = 1, .nope = 1233, .rope = 0, .v_dim = 256});
    refused((ops_widths){.latent = 513, .nope = 128, .rope = 64, .v_dim = 128}, "kv_lora_rank 513");
    refused((ops_widths){.latent = 512, .nope = 128, .rope = 64, .v_dim = 257}, "v_head_dim 257");
    refused((ops_widths){.latent = 512, .nope = 1, .rope = 938, .v_dim = 1},
            "kv_lora_rank 512 with qk_rope_head_dim 938: a block of the GPU's attention would need 232512 bytes");
    refused((ops_widths){.latent = 64, .nope = 1234, .rope = 0, .v_dim = 256},
            "qk_nope_head_dim 1234 with qk_rope_head_dim 0 and v_head_dim 256");
    refused((ops_widths){.latent = 1, .nope = 1 << 15, .rope = 1 << 15, .v_dim = 1}, "there are 232448");
}

/* A draft's heads: whole lanes of 8 columns, four and more of them. */
static void widths_of_draft_heads(void **state) {
    (void)state;
    static const i64 good[] = {0, 32, 64, 96, 128, 256}, bad[] = {16, 80, 100, 288, 512};
    ops_widths w = {.latent = 512, .nope = 128, .rope = 64, .v_dim = 128};
    err e = {0};
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        w.dim = good[i];
        fits(w);
    }
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        w.dim = bad[i];
        assert_int_equal(gpu_op_fits(NULL, &w, &e), ST_UNSUPPORTED);
        assert_non_null(strstr(e.text, "multiples of 32, at most 256"));
    }
}

/* Heads of the vision tower: pairs of pairs of columns. */
static void widths_of_vision_heads(void **state) {
    (void)state;
    static const i64 good[] = {0, 4, 36, 72, 80, 128, 512}, bad[] = {2, 70, 516, 1024};
    err e = {0};
    for (size_t i = 0; i < COUNT_OF(good); i++) fits((ops_widths){.vision = good[i]});
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        char part[40];
        snprintf(part, sizeof part, "heads of %lld columns", (long long)bad[i]);
        assert_int_equal(gpu_op_fits(NULL, &(ops_widths){.vision = bad[i]}, &e), ST_UNSUPPORTED);
        assert_non_null(strstr(e.text, part));
        assert_non_null(strstr(e.text, "multiples of 4, at most 512"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(widths_of_attention), cmocka_unit_test(widths_of_draft_heads),
                                       cmocka_unit_test(widths_of_vision_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
