#include "format/safetensors.h"
#include "base/buf.h"
#include "format/names.h"
#include "format/scan.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    const u8 *data; /* [bytes] what follows the header */
    u64 bytes;
    u64 start; /* its offset in the file */
} data_part;

/* ---- one entry ---- */

static bool safetensors_read_shape(scan *s, tensor_info *t) {
    bool first = true;
    if (!scan_char(s, '[')) return false;
    while (scan_next(s, ']', &first)) {
        u64 d;
        if (!scan_u64(s, &d)) return false;
        if (t->n_dims == TENSOR_DIMS_MAX) {
            s->problem = "more than 8 dimensions";
            return false;
        }
        t->shape[t->n_dims++] = (i64)d;
    }
    return !s->problem;
}

static bool read_offsets(scan *s, u64 *begin, u64 *end) {
    bool first = true;
    return scan_char(s, '[') && scan_next(s, ']', &first) && scan_u64(s, begin) && scan_next(s, ']', &first) &&
           scan_u64(s, end) && !scan_next(s, ']', &first) && !s->problem;
}

typedef struct {
    const char *dtype;
    u64 begin, end;
    bool has_shape, has_offsets;
} raw_entry;

/* The object of one tensor; each of the three keys once, in any order. */
static bool read_object(scan *s, tensor_info *t, raw_entry *r) {
    bool first = true;
    if (!scan_char(s, '{')) return false;
    while (scan_next(s, '}', &first)) {
        const char *key = scan_name(s, NULL);
        if (!key || !scan_char(s, ':')) return false;
        if (strcmp(key, "dtype") == 0 && !r->dtype) {
            if (!(r->dtype = scan_name(s, NULL))) return false;
        } else if (strcmp(key, "shape") == 0 && !r->has_shape) {
            r->has_shape = true;
            if (!safetensors_read_shape(s, t)) return false;
        } else if (strcmp(key, "data_offsets") == 0 && !r->has_offsets) {
            r->has_offsets = true;
            if (!read_offsets(s, &r->begin, &r->end)) {
                if (!s->problem) s->problem = "data_offsets is not [begin, end]";
                return false;
            }
        } else {
            s->problem = "a key other than dtype, shape and data_offsets, or one of them twice";
            return false;
        }
    }
    return !s->problem;
}

/* Bytes of a tensor of this type and shape; false when they do not fit in 63 bits. */
static bool size_of(const tensor_info *t, u64 *bytes) {
    *bytes = dtype_size(t->type);
    for (int i = 0; i < t->n_dims; i++)
        if (t->shape[i] == 0) return *bytes = 0, true;
    for (int i = 0; i < t->n_dims; i++)
        if (!mul_size(*bytes, (u64)t->shape[i], bytes)) return false;
    return true;
}

static status check_entry(tensor_info *t, const raw_entry *r, const data_part *d, err *e) {
    if (!r->dtype || !r->has_shape || !r->has_offsets)
        return err_set(e, ST_FORMAT, "dtype, shape or data_offsets is missing");
    if (!dtype_parse(r->dtype, strlen(r->dtype), &t->type))
        return err_set(e, ST_UNSUPPORTED, "unknown dtype \"%.40s\"", r->dtype);
    if (!size_of(t, &t->bytes)) return err_set(e, ST_FORMAT, "the shape's size does not fit in 63 bits");
    if (r->begin > r->end) return err_set(e, ST_FORMAT, "data_offsets end before they begin");
    if (r->end > d->bytes)
        return err_set(e, ST_FORMAT, "ends at byte %llu of the data, but the file holds only %llu",
                       (unsigned long long)r->end, (unsigned long long)d->bytes);
    if (r->end - r->begin != t->bytes)
        return err_set(e, ST_FORMAT, "dtype and shape make %llu bytes, data_offsets %llu", (unsigned long long)t->bytes,
                       (unsigned long long)(r->end - r->begin));
    u32 align = dtype_size(t->type);
    if (t->bytes && (d->start + r->begin) % align != 0)
        return err_set(e, ST_UNSUPPORTED,
                       "its data at byte %llu is not aligned to %u: save the file again with a current writer",
                       (unsigned long long)(d->start + r->begin), align);
    t->data = d->data + r->begin;
    return ST_OK;
}

/* ---- the header ---- */

static tensor_info *add_tensor(safetensors *s, u64 *cap) {
    if (s->n == *cap) {
        u64 more = *cap ? *cap * 2 : 64;
        tensor_info *p = realloc(s->tensors, more * sizeof *p);
        if (!p) return NULL;
        s->tensors = p;
        *cap = more;
    }
    tensor_info *t = &s->tensors[s->n++];
    memset(t, 0, sizeof *t);
    return t;
}

static bool read_metadata(scan *s) {
    bool first = true;
    if (!scan_char(s, '{')) return false;
    while (scan_next(s, '}', &first))
        if (!scan_skip_string(s) || !scan_char(s, ':') || !scan_skip_string(s)) return false;
    return !s->problem;
}

static status read_entries(safetensors *s, scan *in, const data_part *d, err *e) {
    u64 cap = 0;
    bool first = true, has_metadata = false;
    if (!scan_char(in, '{')) return scan_result(in, e);
    while (scan_next(in, '}', &first)) {
        char *name = scan_name(in, NULL);
        if (!name || !scan_char(in, ':')) return scan_result(in, e);
        if (strcmp(name, "__metadata__") == 0) {
            if (has_metadata) return err_set(e, ST_FORMAT, "\"__metadata__\" occurs twice");
            has_metadata = true;
            if (!read_metadata(in)) return scan_result(in, e), err_prefix(e, "\"__metadata__\""), ST_FORMAT;
            continue;
        }
        tensor_info *t = add_tensor(s, &cap);
        if (!t) return err_nomem(e, "the list of tensors", 2 * cap * sizeof *t);
        t->name = name;
        raw_entry r = {0};
        status st = read_object(in, t, &r) ? check_entry(t, &r, d, e) : scan_result(in, e);
        if (st != ST_OK) return err_prefix(e, "tensor \"%.200s\"", name), st;
    }
    scan_at_end(in);
    return scan_result(in, e);
}

/* ---- what holds between tensors ---- */

static int by_data(const void *pa, const void *pb) {
    const tensor_info *a = pa, *b = pb;
    if (a->data != b->data) return a->data < b->data ? -1 : 1;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

static void sort_by_data(safetensors *s) {
    for (u64 i = 1; i < s->n; i++)
        if (by_data(&s->tensors[i - 1], &s->tensors[i]) > 0) {
            qsort(s->tensors, s->n, sizeof *s->tensors, by_data);
            return;
        }
}

/* The tensors, sorted by place, must cover the data exactly. */
static status check_cover(const safetensors *s, const data_part *d, err *e) {
    const u8 *at = d->data;
    for (u64 i = 0; i < s->n; i++) {
        const tensor_info *t = &s->tensors[i];
        if (t->data < at) return err_set(e, ST_FORMAT, "tensor \"%.200s\" overlaps \"%.200s\"", t->name, t[-1].name);
        if (t->data > at)
            return err_set(e, ST_FORMAT, "%llu bytes before tensor \"%.200s\" belong to no tensor",
                           (unsigned long long)(t->data - at), t->name);
        at = t->data + t->bytes;
    }
    if (at != d->data + d->bytes)
        return err_set(e, ST_FORMAT, "%llu bytes at the end belong to no tensor",
                       (unsigned long long)(d->data + d->bytes - at));
    return ST_OK;
}

static status check_unique(const safetensors *s, err *e) {
    name_table names;
    i64 twice;
    if (!names_build(&names, s->tensors, sizeof *s->tensors, s->n, &twice))
        return err_nomem(e, "the table of names", s->n * 8);
    names_free(&names);
    if (twice < 0) return ST_OK;
    return err_set(e, ST_FORMAT, "tensor \"%.200s\" occurs twice", s->tensors[twice].name);
}

/* Is the length of the header possible? */
static status safetensors_check_length(const u8 *file, u64 size, u64 *n, err *e) {
    if (size < 8)
        return err_set(e, ST_FORMAT, "%llu bytes: too short for a safetensors file", (unsigned long long)size);
    *n = 0;
    for (int i = 7; i >= 0; i--) *n = *n << 8 | file[i];
    if (*n > size - 8)
        return err_set(e, ST_FORMAT, "the header claims %llu bytes, the file has %llu: truncated, or not safetensors",
                       (unsigned long long)*n, (unsigned long long)(size - 8));
    if (*n > SAFETENSORS_HEADER_MAX)
        return err_set(e, ST_LIMIT, "the header claims %llu bytes, more than the format's limit of %u",
                       (unsigned long long)*n, SAFETENSORS_HEADER_MAX);
    if (*n < 2 || file[8] != '{') return err_set(e, ST_FORMAT, "the header is not a JSON object");
    return ST_OK;
}

status safetensors_parse(safetensors *s, const u8 *file, u64 size, err *e) {
    memset(s, 0, sizeof *s);
    u64 n = 0;
    status st = safetensors_check_length(file, size, &n, e);
    if (st != ST_OK) return st;
    s->header = malloc(n);
    if (!s->header) return err_nomem(e, "the header", n);
    memcpy(s->header, file + 8, n);
    data_part d = {file + 8 + n, size - 8 - n, 8 + n};
    scan in = scan_text(s->header, n);
    st = read_entries(s, &in, &d, e);
    if (st != ST_OK) return err_prefix(e, "header"), st;
    sort_by_data(s);
    if ((st = check_cover(s, &d, e)) != ST_OK) return st;
    return check_unique(s, e);
}

void safetensors_free(safetensors *s) {
    free(s->tensors);
    free(s->header);
    memset(s, 0, sizeof *s);
}
