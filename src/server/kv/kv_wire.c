#include "server/kv/kv_wire.h"
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(sizeof(kv_head) == KV_HEAD_BYTES, "the head as it is sent");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are sent as they lie in memory");

static u64 seed_of(u32 kind, u64 number, u64 bytes) {
    const u64 head[] = {kind, number, bytes};
    return XXH3_64bits(head, sizeof head);
}

u64 kv_check(u32 kind, u64 number, const void *data, u64 bytes) {
    return XXH3_64bits_withSeed(data, bytes, seed_of(kind, number, bytes));
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
                      : h->kind == KV_RECORD_ERROR || h->kind == KV_RECORD_FULL
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

static void look_at_numbers(kv_reader *r) {
    const u64 to = r->n_data == r->of.bytes ? r->n_data : r->n_data & ~(u64)7;
    if (r->of.kind != KV_RECORD_PAGE || !r->numbers || to == r->looked) return;
    r->all_numbers = r->all_numbers && r->numbers(r->ud, r->page, r->looked, to);
    r->looked = to;
}

/* Some of a record's data; how many bytes. Each piece is summed and looked at while it is in the first-level cache: a
 * pass over a page of some megabytes behind its last byte would read memory once more for either. */
static u64 take_data(kv_reader *r, const u8 *from, u64 n) {
    enum { PIECE = 16 << 10 };
    u64 taken = 0;
    while (taken < n && r->n_data < r->of.bytes) {
        u8 *to = record_data(r);
        const u64 at = r->n_data;
        taken += fill(to, &r->n_data, r->of.bytes, from + taken, n - taken < PIECE ? n - taken : PIECE);
        XXH3_64bits_update(r->hash, to + at, r->n_data - at);
        look_at_numbers(r);
    }
    return taken;
}

static status whole(kv_reader *r, kv_record_fn fn, void *ud, err *e) {
    const kv_head h = r->of;
    kv_reader_restart(r);
    if (XXH3_64bits_digest(r->hash) != h.check)
        return err_set(e, ST_FORMAT, "%s %lld was damaged on its way: its checksum is another",
                       h.kind == KV_RECORD_PAGE ? "page" : "a record, number", (long long)h.number);
    if (!r->all_numbers) return err_set(e, ST_FORMAT, "page %lld has a NaN or an infinity", (long long)h.number);
    return fn(ud, &h, record_data(r), e);
}

status kv_reader_open(kv_reader *r, err *e) {
    r->hash = XXH3_createState();
    return r->hash ? ST_OK : err_nomem(e, "a checksum", sizeof(XXH3_state_t));
}

void kv_reader_close(kv_reader *r) { XXH3_freeState(r->hash); }

void kv_reader_restart(kv_reader *r) { r->n_head = r->n_data = 0; }

/* The head is whole: its data follows. */
static status begin_record(kv_reader *r, err *e) {
    memcpy(&r->of, r->head, sizeof r->of);
    XXH3_64bits_reset_withSeed(r->hash, seed_of(r->of.kind, r->of.number, r->of.bytes));
    r->looked = 0;
    r->all_numbers = true;
    return check_head(r, e);
}

status kv_reader_take(kv_reader *r, const void *bytes, u64 n, kv_record_fn fn, void *ud, err *e) {
    const u8 *at = bytes, *end = at + n;
    status st = ST_OK;
    while (st == ST_OK && at < end) {
        if (r->n_head < KV_HEAD_BYTES) {
            at += fill(r->head, &r->n_head, KV_HEAD_BYTES, at, (u64)(end - at));
            if (r->n_head < KV_HEAD_BYTES) break;
            st = begin_record(r, e);
        }
        if (st == ST_OK) at += take_data(r, at, (u64)(end - at));
        if (st == ST_OK && r->n_data == r->of.bytes) st = whole(r, fn, ud, e);
    }
    return st;
}
