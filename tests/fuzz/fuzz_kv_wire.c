/* What another server sends as KV pages: any bytes, in two pieces; the first byte says where they are cut. Records that
 * are read must be what the same bytes give when they are written again. */
#include "server/kv/kv_wire.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

enum { PAGE = 48 };

static status write_again(void *ud, const kv_head *h, const u8 *data, err *e) {
    (void)e;
    kv_record_put(ud, (kv_record_kind)h->kind, h->number, data, h->bytes);
    return ST_OK;
}

static bool no_ff(void *ud, const u8 *page, u64 from, u64 to) {
    (void)ud;
    if (from >= to || to > PAGE || (to % 8 && to != PAGE)) abort();
    for (u64 i = from; i < to; i++)
        if (page[i] == 0xff) return false;
    return true;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    u8 page[PAGE];
    kv_reader r = {.page = page, .page_bytes = PAGE, .numbers = no_ff};
    buf again = {0};
    err e = {0};
    if (!size) return 0;
    const size_t cut = data[0] % size;
    if (kv_reader_open(&r, &e) != ST_OK) abort();
    status st = kv_reader_take(&r, data + 1, cut, write_again, &again, &e);
    if (st == ST_OK) st = kv_reader_take(&r, data + 1 + cut, size - 1 - cut, write_again, &again, &e);
    if (st != ST_OK && !e.text[0]) abort();
    if (again.failed || again.len > size - 1 || (again.len && memcmp(again.data, data + 1, again.len))) abort();
    buf_free(&again);
    kv_reader_close(&r);
    return 0;
}
