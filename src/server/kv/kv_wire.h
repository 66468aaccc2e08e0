/* server/kv/kv_wire.h: KV pages as a stream of bytes between a server of --role prefill and one of --role decode.
 *
 * A stream is records, each a head of 32 bytes, little-endian, and its data. Every record has a checksum of its head
 * and its data, so a page that was damaged on its way is never attended to. */
#ifndef SERVER_KV_KV_WIRE_H
#define SERVER_KV_KV_WIRE_H
#include "base/buf.h"
#include "base/err.h"

enum { KV_RECORD_MAGIC = 0x314b564d /* "MVK1" */, KV_HEAD_BYTES = 32, KV_TEXT_MOST = 500, KV_TICKET_MOST = 64 };

typedef enum {
    KV_RECORD_PAGE = 1, /* number: of the page in its prompt */
    KV_RECORD_WAIT,     /* nothing yet, but somebody is there */
    KV_RECORD_END,      /* that were all pages */
    KV_RECORD_ERROR,    /* there will be no more: a text of at most KV_TEXT_MOST bytes says why */
    KV_RECORD_FULL      /* the same, and why is that there was no room: it may be asked again */
} kv_record_kind;

typedef struct {
    u32 magic, kind;
    u64 number, bytes; /* bytes: of the data */
    u64 check;         /* kv_check() */
} kv_head;

/* XXH3 of a record's kind, number, length and data: against damage, not against forgers. */
u64 kv_check(u32 kind, u64 number, const void *data, u64 bytes);

/* Appends a record; or its head alone, whose data follows from elsewhere. */
void kv_record_put(buf *out, kv_record_kind kind, u64 number, const void *data, u64 bytes);
void kv_record_head(buf *out, kv_record_kind kind, u64 number, const void *data, u64 bytes);

/* Are these bytes of a page, [from, to), numbers? Whole values, asked in order, while they are in the cache. */
typedef bool (*kv_numbers_fn)(void *ud, const u8 *page, u64 from, u64 to);

/* Puts records together from the pieces in which they arrive. */
typedef struct {
    u8 *page;              /* [page_bytes]: where a page is put together */
    u64 page_bytes;        /* of a page: another length is refused before anything is read */
    kv_numbers_fn numbers; /* NULL: nobody looks */
    void *ud;              /* for it */
    void *hash;            /* XXH3's state, over what came of the record's data */
    u64 looked;            /* bytes that numbers() has seen */
    bool all_numbers;
    u8 head[KV_HEAD_BYTES];
    kv_head of; /* of the record under way, if all of its head is there */
    u64 n_head, n_data;
    u8 text[KV_TEXT_MOST]; /* of an error */
} kv_reader;
/* r with its first four members set. */
status kv_reader_open(kv_reader *r, err *e);
void kv_reader_close(kv_reader *r);   /* also of one that is all zero */
void kv_reader_restart(kv_reader *r); /* another stream begins */
/* Called for each whole record; what it returns but ST_OK ends the reading. */
typedef status (*kv_record_fn)(void *ud, const kv_head *h, const u8 *data, err *e);
/* ST_FORMAT: what came is no record, was damaged, or has what is no number. */
status kv_reader_take(kv_reader *r, const void *bytes, u64 n, kv_record_fn fn, void *ud, err *e);

#endif
