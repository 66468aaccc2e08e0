/* cmd/inspect_formats.c: `moonlet inspect --formats`: which weight formats there are, how a checkpoint holds them, and
 * what each backend does with them. */
#include "base/json.h"
#include "cmd/inspect_formats.h"
#include "kernels/backend.h"
#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name, *title;
} backends[] = {{"ref", "ref"}, {"cpu", "cpu (this one)"}, {"cuda", "cuda"}};

static const char *speed_text(format_speed s) {
    static const char *const texts[] = {[FORMAT_REFUSED] = "no",
                                        [FORMAT_EXPANDED] = "expanded",
                                        [FORMAT_AS_BF16] = "as bf16",
                                        [FORMAT_NATIVE] = "native"};
    return texts[s];
}

/* "4.50": with its scales, of a large matrix. */
static f64 bits_of(weight_format f) {
    enum { SIDE = 8192 };
    const weight_view w = {.format = f, .rows = SIDE, .cols = SIDE};
    return (f64)weight_bytes(&w) * 8 / ((f64)SIDE * SIDE);
}

static void tensors_text(const weight_layout *l, char out[160]) {
    int n = snprintf(out, 160, "%s %s", l->data, dtype_name(l->data_type));
    if (l->scale) n += snprintf(out + n, 160 - (size_t)n, ", %s %s", l->scale, dtype_name(l->scale_type));
    if (l->scale && l->scale_cols)
        n += snprintf(out + n, 160 - (size_t)n, " of %lld x %lld", (long long)l->scale_rows, (long long)l->scale_cols);
    else if (l->scale)
        n += snprintf(out + n, 160 - (size_t)n, " of a row");
    if (l->factor) n += snprintf(out + n, 160 - (size_t)n, ", %s%s", l->factor, l->factor_divides ? " (divides)" : "");
    if (l->shape) snprintf(out + n, 160 - (size_t)n, ", %s", l->shape);
}

static void formats_print_table(void) {
    printf("%-13s %5s  %-30s %-30s %-30s\n", "format", "bits", "ref: linear, experts", "cpu here: linear, experts",
           "cuda: linear, experts");
    for (int f = 0; f < weight_formats(); f++) {
        printf("%-13s %5.2f", weight_format_name((weight_format)f), bits_of((weight_format)f));
        for (size_t b = 0; b < COUNT_OF(backends); b++) {
            char both[48];
            snprintf(both, sizeof both, "%s, %s",
                     speed_text(backend_format_speed(backends[b].name, (weight_format)f, false)),
                     speed_text(backend_format_speed(backends[b].name, (weight_format)f, true)));
            printf("  %-29s", both);
        }
        printf("\n");
    }
    printf("\n");
    for (int f = 0; f < weight_formats(); f++) {
        char tensors[160];
        const weight_layout *l = weight_layout_of((weight_format)f);
        tensors_text(l, tensors);
        printf("%-13s %s: NAME + %s\n", l->name, l->origin, tensors);
    }
    printf(
        "\nnative: multiplied as stored, or repacked once at load; as bf16: rounded to bf16 once at load, which takes "
        "16 bits of\nmemory; expanded: each row is made float32 as it is used, slow; no: refused when a model is opened. "
        "bits: of a\nweight, with its scales.\n");
}

static json_t *row_of(weight_format f) {
    const weight_layout *l = weight_layout_of(f);
    json_t *row = json_pack("{s:s s:s s:f}", "name", l->name, "origin", l->origin, "bits", bits_of(f));
    for (size_t b = 0; b < COUNT_OF(backends); b++)
        json_object_set_new(row, backends[b].name,
                            json_pack("{s:s s:s}", "linear",
                                      speed_text(backend_format_speed(backends[b].name, f, false)), "experts",
                                      speed_text(backend_format_speed(backends[b].name, f, true))));
    return row;
}

void inspect_formats(bool json) {
    if (!json) {
        formats_print_table();
        return;
    }
    json_t *all = json_array();
    for (int f = 0; f < weight_formats(); f++) json_array_append_new(all, row_of((weight_format)f));
    char *text = json_to_text(all, &(json_style){",", ": ", NULL, 2});
    printf("%s\n", text ? text : "out of memory");
    free(text);
    json_decref(all);
}
