#include "format/safetensors_writer.h"
#include "base/json.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

u64 tensor_out_bytes(const tensor_out *t) {
    u64 n = dtype_size(t->type);
    for (int i = 0; i < t->n_dims; i++) n *= (u64)t->shape[i];
    return n;
}

static int by_place(const void *pa, const void *pb) {
    const tensor_out *a = *(const tensor_out *const *)pa, *b = *(const tensor_out *const *)pb;
    u32 na = dtype_size(a->type), nb = dtype_size(b->type);
    return na != nb ? (na < nb ? 1 : -1) : strcmp(a->name, b->name);
}

static void add_header_entry(buf *head, const tensor_out *t, u64 begin) {
    buf_str(head, ",");
    buf_json_str(head, t->name, strlen(t->name));
    buf_fmt(head, ":{\"dtype\":\"%s\",\"shape\":[", dtype_name(t->type));
    for (int i = 0; i < t->n_dims; i++) buf_fmt(head, "%s%lld", i ? "," : "", (long long)t->shape[i]);
    buf_fmt(head, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin, (unsigned long long)(begin + t->bytes));
}

status safetensors_layout(tensor_out *t, u64 n, buf *head, u64 *size, err *e) {
    tensor_out **order = malloc((n ? n : 1) * sizeof *order);
    if (!order) return err_nomem(e, "the order of tensors", n * sizeof *order);
    for (u64 i = 0; i < n; i++) order[i] = &t[i];
    qsort(order, n, sizeof *order, by_place);
    buf_clear(head);
    buf_add(head, "\0\0\0\0\0\0\0\0", 8);
    buf_str(head, "{\"__metadata__\":{\"format\":\"pt\"}");
    u64 at = 0;
    for (u64 i = 0; i < n; i++) {
        add_header_entry(head, order[i], at);
        order[i]->at = at;
        at += order[i]->bytes;
    }
    buf_char(head, '}');
    while (head->len % 8) buf_char(head, ' ');
    free(order);
    if (head->failed) return err_nomem(e, "the header of a shard", head->len);
    for (int i = 0; i < 8; i++) head->data[i] = (char)((head->len - 8) >> 8 * i & 255);
    for (u64 i = 0; i < n; i++) t[i].at += head->len;
    *size = head->len + at;
    return ST_OK;
}

status safetensors_create(out_file *f, const char *path, tensor_out *t, u64 n, err *e) {
    buf head = {0};
    u64 size = 0;
    f->fd = -1;
    status st = safetensors_layout(t, n, &head, &size, e);
    if (st == ST_OK) st = out_file_create(f, path, size, e);
    if (st == ST_OK && (st = out_file_write(f, 0, head.data, head.len, e)) != ST_OK) out_file_drop(f);
    buf_free(&head);
    return st;
}

status safetensors_put(out_file *f, const tensor_out *t, u64 at, const void *bytes, u64 n, err *e) {
    assert(at + n <= t->bytes);
    return out_file_write(f, t->at + at, bytes, n, e);
}
