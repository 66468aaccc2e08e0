#include "server/kv/kv_wire.h"
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(sizeof(kv_head) == KV_HEAD_BYTES, "the head as it is sent");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are sent as they lie in memory");

u64 kv_check(u32 kind, u64 number, const void *data, u64 bytes) {
    const u64 head[] = {kind, number, bytes};
    return XXH3_64bits_withSeed(data, bytes, XXH3_64bits(head, sizeof head));
}

void kv_record_head(buf *out, kv_record_kind kind, u64 number, const void *data, u64 bytes) {
    const kv_head h = {KV_RECORD_MAGIC, kind, number, bytes, kv_check(kind, number, data, bytes)};
    buf_add(out, &h, sizeof h);
}

void kv_record_put(buf *out, kv_record_kind kind, u64 number, const void *data, u64 bytes) {
    kv_record_head(out, kind, number, data, bytes);
    if (bytes) buf_add(out, data, bytes);
}

static status check_head(const kv_reader *r, err *e) {
    const kv_head *h = &r->of;
    if (h->magic != KV_RECORD_MAGIC) return err_set(e, ST_FORMAT, "what came is no record of KV pages");
    const bool good = h->kind == KV_RECORD_PAGE ? h->bytes == r->page_bytes
                      : h->kind == KV_RECORD_ERROR
                          ? h->bytes <= KV_TEXT_MOST
                          : !h->bytes && (h->kind == KV_RECORD_WAIT || h->kind == KV_RECORD_END);
    if (good) return ST_OK;
    return err_set(e, ST_FORMAT, "a record of kind %u with %llu bytes; a page has %llu", h->kind,
                   (unsigned long long)h->bytes, (unsigned long long)r->page_bytes);
}

/* Up to `want` bytes of one part of a record; how many there were. */
static u64 fill(u8 *to, u64 *have, u64 want, const u8 *from, u64 n) {
    const u64 take = n < want - *have ? n : want - *have;
    if (take) memcpy(to + *have, from, take);
    *have += take;
    return take;
}

static u8 *record_data(kv_reader *r) { return r->of.kind == KV_RECORD_PAGE ? r->page : r->text; }

static status whole(kv_reader *r, kv_record_fn fn, void *ud, err *e) {
    const kv_head h = r->of;
    const u8 *data = record_data(r);
    r->n_head = r->n_data = 0;
    if (kv_check(h.kind, h.number, data, h.bytes) != h.check)
        return err_set(e, ST_FORMAT, "%s %lld was damaged on its way: its checksum is another",
                       h.kind == KV_RECORD_PAGE ? "page" : "a record, number", (long long)h.number);
    return fn(ud, &h, data, e);
}

status kv_reader_take(kv_reader *r, const void *bytes, u64 n, kv_record_fn fn, void *ud, err *e) {
    const u8 *at = bytes, *end = at + n;
    status st = ST_OK;
    while (st == ST_OK && at < end) {
        if (r->n_head < KV_HEAD_BYTES) {
            at += fill(r->head, &r->n_head, KV_HEAD_BYTES, at, (u64)(end - at));
            if (r->n_head < KV_HEAD_BYTES) break;
            memcpy(&r->of, r->head, sizeof r->of);
            st = check_head(r, e);
        }
        if (st == ST_OK) at += fill(record_data(r), &r->n_data, r->of.bytes, at, (u64)(end - at));
        if (st == ST_OK && r->n_data == r->of.bytes) st = whole(r, fn, ud, e);
    }
    return st;
}
