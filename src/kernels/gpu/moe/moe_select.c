/* kernels/gpu/moe/moe_select.c: see the header. */
#include "kernels/gpu/moe/moe_select.h"
#include "kernels/gpu/moe/decode_stored.h"
#include "kernels/gpu/moe/moe_tuned.h"
#include <stdio.h>
#include <string.h>

enum {
    WIDE_MEAN = 48,    /* tokens an expert, from which on tiles are wide */
    WIDEST_MEAN = 112, /* the same of the widest */
    /* INT4 is rounded to bf16 at many tokens, which only many columns average out where a token is all that the
     * error is measured on (1 token, w2_bf16: 3.3e-3 with 7168 columns, 4.1e-3 with 256) */
    ROUNDED_COLUMNS = 1024
};

static const char *const formats[] = {
#define MOE_TEXT(name, text) text,
    MOE_FORMATS(MOE_TEXT)
#undef MOE_TEXT
};
static const char *const paths[][2] = {
#define MOE_TEXTS(name, text, before) {text, before},
    MOE_PATHS(MOE_TEXTS)
#undef MOE_TEXTS
};

const char *moe_format_text(moe_format f) { return formats[f]; }
const char *moe_path_text(moe_path p) { return paths[p][0]; }
bool moe_format_of(const char *text, moe_format *out) {
    for (size_t i = 0; i < COUNT_OF(formats); i++)
        if (!strcmp(text, formats[i])) return *out = (moe_format)i, true;
    return false;
}
bool moe_path_of(const char *text, moe_path *out) {
    for (size_t i = 0; i < COUNT_OF(paths); i++)
        if (!strcmp(text, paths[i][0]) || !strcmp(text, paths[i][1])) return *out = (moe_path)i, true;
    return false;
}

void moe_choice_text(moe_choice how, char out[MOE_CHOICE_TEXT]) {
    int n = snprintf(out, MOE_CHOICE_TEXT, "%s", moe_path_text(how.path));
#define MOE_KNOB_TEXT(name, min, max, step)                                                                            \
    if (how.name) n += snprintf(out + n, (size_t)(MOE_CHOICE_TEXT - n), " " #name " %d", how.name);
    MOE_KNOBS(MOE_KNOB_TEXT)
#undef MOE_KNOB_TEXT
}

static bool is_int8(const moe_call *c) {
    return c->format == MOE_W4A8 && moe_is_int8(INT8_MEAN, c->tokens * c->topk, c->experts, c->dim, c->inter);
}

static bool is_stored(const moe_call *c) { return c->format == MOE_BF16 || c->format == MOE_FP8; }

/* The copy engine counts rows of all experts in 32 bits. */
static bool one_tensor(const moe_call *c) { return 3 * c->experts * max_i64(c->dim, c->inter) <= INT32_MAX; }

/* decode_stored.cu: FP8 in any number of tokens, some at a time. */
static bool can_stored(const moe_call *c) {
    i64 tokens = c->form == ROWS_DECODE ? DECODE_ROWS : c->tokens; /* the same answer for any number of rows */
    bool fits = c->topk <= DECODE_STORED_PAIRS && c->experts <= DECODE_INT4_EXPERTS && one_tensor(c);
    if (c->format == MOE_FP8) return fits && c->experts <= DECODE_STORED_EXPERTS_FP8;
    return fits && c->form != ROWS_PROMPT && tokens * c->topk <= DECODE_STORED_PAIRS;
}

static int widest_tile(const moe_call *c, moe_path p) { return p == MOE_GROUPED && c->format == MOE_FP8 ? 128 : 176; }

bool moe_can(const moe_call *c, moe_path p) {
    if (p == MOE_GROUPED_W4A8 || is_int8(c)) return p == MOE_GROUPED_W4A8 && is_int8(c);
    if (p == MOE_DECODE && is_stored(c)) return can_stored(c);
    if (p == MOE_DECODE)
        return (moe_is_int4(c) || moe_is_fp4(c)) && c->form != ROWS_PROMPT && c->tokens <= DECODE_INT4_TOKENS &&
               c->tokens * c->topk <= DECODE_INT4_PAIRS && c->experts <= DECODE_INT4_EXPERTS;
    if (p == MOE_GROUPED) return c->format != MOE_OTHER && c->form != ROWS_DECODE && (!is_stored(c) || one_tensor(c));
    return p == MOE_GENERIC;
}

moe_choice moe_default(const moe_call *c) {
    i64 pairs = c->tokens * c->topk;
    bool wide = pairs > WIDE_MEAN * c->experts;
    if (moe_can(c, MOE_GROUPED_W4A8)) return (moe_choice){.path = MOE_GROUPED_W4A8, .tile = wide ? 176 : 64};
    /* Measured on an H200: 36 tokens of a TP8 rank in bf16, 96 in FP8. */
    bool many = c->format == MOE_BF16      ? pairs * 4 >= 3 * c->experts
                : c->format == MOE_FP8     ? pairs >= 2 * c->experts
                : c->format == MOE_W2_BF16 ? pairs >= GROUPED_MEAN * c->experts || c->dim >= ROUNDED_COLUMNS
                                           : pairs >= GROUPED_MEAN * c->experts;
    if (moe_can(c, MOE_GROUPED) && (c->form == ROWS_PROMPT || many))
        return (moe_choice){.path = MOE_GROUPED,
                            .tile = pairs > WIDEST_MEAN * c->experts ? widest_tile(c, MOE_GROUPED)
                                    : wide                           ? 128
                                                                     : 64};
    if (!moe_can(c, MOE_DECODE))
        return c->format != MOE_W2_BF16 && moe_can(c, MOE_GROUPED) ? (moe_choice){.path = MOE_GROUPED, .tile = 64}
                                                                   /* too many tokens, though few an expert */
                                                                   : (moe_choice){.path = MOE_GENERIC};
    if (!moe_is_int4(c)) return (moe_choice){.path = MOE_DECODE};
    /* As few as most experts have; rows that decode have one kernel for any number of them. */
    i64 usual = c->form == ROWS_DECODE ? DECODE_ROWS * c->topk : pairs;
    return (moe_choice){.path = MOE_DECODE, .group = usual <= 2 * c->experts ? 4 : 8};
}

bool moe_allowed(const moe_call *c, const moe_choice *choice) {
    if (!moe_can(c, choice->path) || ((choice->path != MOE_DECODE || !moe_is_int4(c)) && choice->group) ||
        (choice->path != MOE_GROUPED && choice->path != MOE_GROUPED_W4A8 && choice->tile) ||
        choice->tile > widest_tile(c, choice->path))
        return false;
#define MOE_KNOB_IN(name, min, max, step)                                                                              \
    if (choice->name && (choice->name < (min) || choice->name > (max) || choice->name % (step))) return false;
    MOE_KNOBS(MOE_KNOB_IN)
#undef MOE_KNOB_IN
    return true;
}

/* What `wanted` leaves open is as in the default, or else as the built-in rule has it for that path. */
static moe_choice completed(const moe_call *c, moe_choice wanted) {
    moe_choice usual = moe_default(c);
    i64 pairs = c->tokens * c->topk;
    if (wanted.path == MOE_DECODE && !wanted.group && moe_is_int4(c))
        wanted.group = usual.path == MOE_DECODE ? usual.group : pairs <= 2 * c->experts ? 4 : 8;
    if ((wanted.path == MOE_GROUPED || wanted.path == MOE_GROUPED_W4A8) && !wanted.tile)
        wanted.tile = usual.path == wanted.path ? usual.tile : 64;
    return wanted;
}

moe_choice moe_choose(const moe_call *c, const tuned_table *t, moe_source *from) {
    *from = MOE_BUILT_IN;
    if (!t || c->form != ROWS_ANY || c->format == MOE_OTHER) return moe_default(c);
    const tuned_row *row = tuned_find(t, c);
    *from = row ? MOE_TUNED : MOE_MISSED;
    if (row && moe_allowed(c, &row->choice)) return completed(c, row->choice);
    /* The row is of more tokens, whose path does not take so few: W4A8's two kinds of arithmetic. */
    if (row) *from = MOE_BUILT_IN;
    return moe_default(c);
}

static int add_choice(const moe_call *c, moe_choice how, moe_choice *out, int n) {
    if (!moe_allowed(c, &how)) return n;
    how = completed(c, how);
    for (int i = 0; i < n; i++)
        if (out[i].path == how.path && out[i].group == how.group && out[i].tile == how.tile) return n;
    out[n] = how;
    return n + 1;
}

/* What never won on an H200 (2026-11-22) is left out: many below half a token an expert, few above 24, narrow tiles
 * above 160, wide ones below 24, tiles of 96, of 128 with int8. */
int moe_candidates(const moe_call *c, moe_choice out[MOE_CANDIDATES]) {
    const i64 pairs = c->tokens * c->topk;
    const bool some = 2 * pairs >= c->experts, several = pairs > 24 * c->experts, lots = pairs > 160 * c->experts;
    const struct {
        moe_choice how;
        bool likely;
    } all[] = {
        {{MOE_DECODE, .group = 4}, !several},
        {{MOE_DECODE, .group = 8}, !several},
        {{MOE_GROUPED, .tile = 64}, some && !lots},
        {{MOE_GROUPED, .tile = 128}, several},
        {{MOE_GROUPED, .tile = 176}, pairs > 64 * c->experts},
        {{MOE_GROUPED_W4A8, .tile = 64}, !lots},
        {{MOE_GROUPED_W4A8, .tile = 176}, several},
        {{.path = MOE_DECODE}, !several && !moe_is_int4(c)},
    };
    int n = add_choice(c, moe_default(c), out, 0);
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i].likely) n = add_choice(c, all[i].how, out, n);
    return n;
}
