#include "format/detect.h"
#include <stdio.h>
#include <string.h>

static const tensor_info *detect_tensor(const checkpoint *ck, const char *name, const char *suffix) {
    char full[256];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    return checkpoint_find(ck, full);
}

/* How much of a format is there. NOTHING: no data of its type; LIKELY: some of what the configuration speaks of. */
enum { NOTHING = -1, DATA_ALONE, SCALE_OF_OTHER_TYPE, NO_FACTOR, LIKELY, ALL };

/* data: the tensor with the name that l's data have. */
static int found_of(const checkpoint *ck, const char *name, const weight_layout *l, const tensor_info *data) {
    if (!data || data->type != l->data_type) return NOTHING;
    if (!l->scale) return ALL;
    const tensor_info *t = detect_tensor(ck, name, l->scale);
    if (!t) return DATA_ALONE;
    if (t->type != l->scale_type && !(l->scales_vary && t->type == DT_BF16)) return SCALE_OF_OTHER_TYPE;
    return l->factor && !detect_tensor(ck, name, l->factor) ? NO_FACTOR : ALL;
}

/* The tensor with the name that format f's data have; data[]: those of the formats behind f. Each name is looked up
 * once. */
static const tensor_info *data_of(const checkpoint *ck, const char *name, int f, const tensor_info *const *data) {
    const char *suffix = weight_layout_of((weight_format)f)->data;
    for (int k = f + 1; k < weight_formats(); k++)
        if (!strcmp(weight_layout_of((weight_format)k)->data, suffix)) return data[k];
    return detect_tensor(ck, name, suffix);
}

static weight_format detect_kept(weight_format f) {
    const weight_format as = weight_layout_of(f)->kept_as;
    return as ? as : f;
}

bool weight_detect(const checkpoint *ck, const char *name, weight_format likely, weight_format *out) {
    const tensor_info *data[WEIGHT_FORMATS_MOST];
    int best = NOTHING;
    /* The last formats first: the others are written as one plain tensor, which theirs may have beside it. */
    for (int f = weight_formats() - 1; f >= 0 && best < ALL; f--) {
        data[f] = data_of(ck, name, f, data);
        int found = found_of(ck, name, weight_layout_of((weight_format)f), data[f]);
        if (found > NOTHING && found < ALL && detect_kept((weight_format)f) == detect_kept(likely)) found = LIKELY;
        if (found > best) best = found, *out = (weight_format)f;
    }
    /* What others have by chance, the type of data, does not count against the configuration's names. */
    for (int f = 0; best > NOTHING && best < LIKELY && f < weight_formats(); f++)
        if (data[f] && detect_kept((weight_format)f) == detect_kept(likely)) *out = (weight_format)f;
    return best > NOTHING;
}

bool weight_detect_part(const checkpoint *ck, const tensor_info *t, weight_format *out) {
    char name[256];
    const char *dot = strrchr(t->name, '.');
    if (!dot || dot - t->name >= (int)sizeof name) return false;
    snprintf(name, sizeof name, "%.*s", (int)(dot - t->name), t->name);
    if (!weight_detect(ck, name, WF_BF16, out)) return false;
    const weight_layout *l = weight_layout_of(*out);
    const char *const parts[] = {l->data, l->scale, l->factor, l->zeros, l->shape};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (parts[i] && !strcmp(dot, parts[i])) return true;
    return false;
}
