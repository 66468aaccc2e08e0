/* kernels/gpu/gemm/gemm_select.c: see the header. */
#include "kernels/gpu/gemm/gemm_select.h"
#include "kernels/gpu/gemm/gemm_tuned.h"
#include <stdio.h>
#include <string.h>

#define GEMM_TEXT(name, text) text,
static const char *const op_names[] = {GEMM_OPS(GEMM_TEXT)};
static const char *const path_names[] = {GEMM_PATHS(GEMM_TEXT)};
#undef GEMM_TEXT

const char *gemm_op_text(gemm_op op) { return op_names[op]; }
const char *gemm_path_text(gemm_path p) { return path_names[p]; }
bool gemm_op_of(const char *text, gemm_op *out) {
    for (size_t i = 0; i < COUNT_OF(op_names); i++)
        if (!strcmp(text, op_names[i])) return *out = (gemm_op)i, true;
    return false;
}
bool gemm_path_of(const char *text, gemm_path *out) {
    for (size_t i = 0; i < COUNT_OF(path_names); i++)
        if (!strcmp(text, path_names[i])) return *out = (gemm_path)i, true;
    return false;
}

void gemm_choice_text(const gemm_choice *how, char out[GEMM_CHOICE_TEXT]) {
    int n = snprintf(out, GEMM_CHOICE_TEXT, "%s", gemm_path_text(how->path));
#define GEMM_CONFIG_TEXT(name, attribute, bytes, max)                                                                  \
    if (how->how.name) n += snprintf(out + n, (size_t)(GEMM_CHOICE_TEXT - n), " " #name " %d", how->how.name);
    CUBLAS_CONFIG(GEMM_CONFIG_TEXT)
#undef GEMM_CONFIG_TEXT
}

bool gemm_same(const gemm_call *a, const gemm_call *b) {
    return a->op == b->op && a->f32 == b->f32 && a->rows == b->rows && a->cols == b->cols && a->heads == b->heads &&
           a->tokens == b->tokens;
}

gemm_choice gemm_default(i64 library) { return (gemm_choice){.path = library ? GEMM_FIRST : GEMM_TILE}; }

bool gemm_allowed(const gemm_call *c, const gemm_choice *how, i64 library) {
    static const cublas_config none = {0};
    if (how->path != GEMM_CUBLAS && memcmp(&how->how, &none, sizeof none)) return false;
    if (how->path == GEMM_FIRST || how->path == GEMM_CUBLAS) return library > 0;
    if (how->path == GEMM_INVARIANT) return c->op != GEMM_ACROSS && c->heads == 1 && !(c->rows % 8 || c->cols % 8);
    return !library;
}

gemm_choice gemm_choose(const gemm_call *c, const gemm_table *t, i64 library, gemm_source *from) {
    *from = GEMM_BUILT_IN;
    if (!t) return gemm_default(library);
    const gemm_row *row = gemm_find(t, c, library);
    *from = row ? GEMM_TUNED : gemm_is_foreign(t, c, library) ? GEMM_FOREIGN : GEMM_MISSED;
    return row ? row->choice : gemm_default(library);
}

i64 gemm_tiles_of(const i64 *rows, int parts, i64 height) {
    i64 tiles = 0;
    for (int i = 0; i < parts; i++) tiles += ceil_div(rows[i], height);
    return tiles;
}

i64 gemm_few_rows(const i64 *rows, int parts, i64 processors) {
    for (i64 height = 16; height <= 64; height *= 2) {
        const i64 tiles = gemm_tiles_of(rows, parts, height);
        if (tiles <= processors) return tiles * 4 >= processors * 3 ? height : 0;
    }
    return 0;
}
