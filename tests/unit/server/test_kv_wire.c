/* KV pages as records: in whatever pieces they come, the same ones; what is damaged, cut or made up is none. */
#include "unit.h"
#include "server/kv/kv_wire.h"
#include <stdlib.h>
#include <string.h>

enum { PAGE = 700, MOST = 16 };

typedef struct {
    int n, most; /* most: of records, then the reading is ended */
    u32 kind[MOST];
    u64 number[MOST];
    u8 first[MOST], last[MOST];
    char text[KV_TEXT_MOST + 1];
    u64 looked;
} seen;

static status note(void *ud, const kv_head *h, const u8 *data, err *e) {
    seen *s = ud;
    assert_true(s->n < MOST);
    s->kind[s->n] = h->kind;
    s->number[s->n] = h->number;
    if (h->kind == KV_RECORD_PAGE) s->first[s->n] = data[0], s->last[s->n] = data[PAGE - 1];
    if (h->kind == KV_RECORD_ERROR) memcpy(s->text, data, h->bytes);
    return ++s->n == s->most ? err_set(e, ST_CANCELLED, "enough") : ST_OK;
}

static void put_all(buf *b) {
    u8 page[PAGE];
    for (u64 p = 3; p < 5; p++) {
        memset(page, (int)p, sizeof page);
        kv_record_put(b, KV_RECORD_WAIT, 0, NULL, 0);
        kv_record_put(b, KV_RECORD_PAGE, p, page, sizeof page);
    }
    kv_record_put(b, KV_RECORD_ERROR, 0, "why not", 7);
    memset(page, 9, PAGE);
    kv_record_head(b, KV_RECORD_PAGE, 9, page, PAGE);
    buf_add(b, page, PAGE);
    kv_record_put(b, KV_RECORD_END, 0, NULL, 0);
    assert_false(b->failed);
}

/* Every byte of a page in its turn; 0xee stands for what is no number. */
static bool seen_once(void *ud, const u8 *page, u64 from, u64 to) {
    seen *s = ud;
    assert_true(from == s->looked && to > from && to <= PAGE && (to % 8 == 0 || to == PAGE));
    s->looked = to < PAGE ? to : 0;
    for (u64 i = from; i < to; i++)
        if (page[i] == 0xee) return false;
    return true;
}

static status take(const buf *b, u64 piece, seen *s, err *e) {
    static u8 room[PAGE];
    kv_reader r = {.page = room, .page_bytes = PAGE, .numbers = seen_once, .ud = s};
    status st = kv_reader_open(&r, e);
    s->looked = 0;
    for (u64 at = 0; st == ST_OK && at < b->len; at += piece)
        st = kv_reader_take(&r, b->data + at, b->len - at < piece ? b->len - at : piece, note, s, e);
    kv_reader_close(&r);
    return st;
}

static void whatever_the_pieces(void **state) {
    (void)state;
    static const u32 kinds[] = {KV_RECORD_WAIT,  KV_RECORD_PAGE, KV_RECORD_WAIT, KV_RECORD_PAGE,
                                KV_RECORD_ERROR, KV_RECORD_PAGE, KV_RECORD_END};
    buf b = {0};
    put_all(&b);
    for (u64 piece = 1; piece <= b.len; piece = piece < 80 ? piece + 1 : 2 * piece) {
        seen s = {0};
        err e = {0};
        assert_int_equal(take(&b, piece, &s, &e), ST_OK);
        assert_int_equal(s.n, COUNT_OF(kinds));
        for (int i = 0; i < s.n; i++) assert_int_equal(s.kind[i], kinds[i]);
        assert_int_equal(s.number[1], 3);
        assert_int_equal(s.number[3], 4);
        assert_true(s.first[3] == 4 && s.last[3] == 4 && s.first[5] == 9 && s.last[5] == 9);
        assert_string_equal(s.text, "why not");
    }
    seen s = {.most = 2};
    err e = {0};
    assert_int_equal(take(&b, 1000, &s, &e), ST_CANCELLED);
    assert_int_equal(s.n, 2);
    buf_free(&b);
}

/* Every bit of a record: its head, its data, its checksum. */
static void every_bit_counts(void **state) {
    (void)state;
    buf b = {0};
    u8 page[PAGE];
    for (int i = 0; i < PAGE; i++) page[i] = (u8)(i * 7 & 0x7f);
    kv_record_put(&b, KV_RECORD_PAGE, 5, page, sizeof page);
    for (size_t bit = 0; bit < 8 * b.len; bit++) {
        seen s = {0};
        err e = {0};
        b.data[bit / 8] = (char)(b.data[bit / 8] ^ 1 << bit % 8);
        const status st = take(&b, 4096, &s, &e);
        assert_int_equal(s.n, 0);
        assert_int_equal(st, ST_FORMAT);
        assert_true(e.text[0] != 0);
        b.data[bit / 8] = (char)(b.data[bit / 8] ^ 1 << bit % 8);
    }
    buf_free(&b);
}

/* A length that nobody would send is refused before anything of that length is waited for. */
static void lengths_are_checked_first(void **state) {
    (void)state;
    const kv_head bad[] = {{KV_RECORD_MAGIC, KV_RECORD_PAGE, 0, PAGE - 1, 0},
                           {KV_RECORD_MAGIC, KV_RECORD_PAGE, 0, 0, 0},
                           {KV_RECORD_MAGIC, KV_RECORD_PAGE, 0, (u64)1 << 62, 0},
                           {KV_RECORD_MAGIC, KV_RECORD_ERROR, 0, KV_TEXT_MOST + 1, 0},
                           {KV_RECORD_MAGIC, KV_RECORD_END, 0, 1, 0},
                           {KV_RECORD_MAGIC, KV_RECORD_WAIT, 0, 8, 0},
                           {KV_RECORD_MAGIC, 0, 0, 0, 0},
                           {KV_RECORD_MAGIC, 6, 0, 0, 0},
                           {KV_RECORD_MAGIC, KV_RECORD_FULL, 0, KV_TEXT_MOST + 1, 0},
                           {0, KV_RECORD_END, 0, 0, 0}};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        u8 room[PAGE];
        kv_reader r = {.page = room, .page_bytes = PAGE};
        seen s = {0};
        err e = {0};
        assert_int_equal(kv_reader_open(&r, &e), ST_OK);
        assert_int_equal(kv_reader_take(&r, &bad[i], sizeof bad[i], note, &s, &e), ST_FORMAT);
        assert_int_equal(s.n, 0);
        kv_reader_close(&r);
    }
    u8 room[PAGE];
    kv_reader cut = {.page = room, .page_bytes = PAGE};
    seen s = {0};
    assert_int_equal(kv_reader_open(&cut, NULL), ST_OK);
    assert_int_equal(kv_reader_take(&cut, &bad[8], 5, note, &s, NULL), ST_OK); /* no whole head yet */
    kv_reader_close(&cut);
}

/* Its checksum is right; the page before it is read. */
static void what_is_no_number(void **state) {
    (void)state;
    static const int places[] = {0, 7, 8, 350, PAGE - 4, PAGE - 1};
    for (size_t i = 0; i < COUNT_OF(places); i++)
        for (u64 piece = 1; piece < 2000; piece = piece * 3 + 1) {
            buf b = {0};
            seen s = {0};
            err e = {0};
            u8 page[PAGE] = {0};
            kv_record_put(&b, KV_RECORD_PAGE, 5, page, sizeof page);
            page[places[i]] = 0xee;
            kv_record_put(&b, KV_RECORD_PAGE, 6, page, sizeof page);
            assert_int_equal(take(&b, piece, &s, &e), ST_FORMAT);
            assert_int_equal(s.n, 1);
            assert_non_null(strstr(e.text, "page 6 has a NaN or an infinity"));
            buf_free(&b);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_the_pieces),
        cmocka_unit_test(every_bit_counts),
        cmocka_unit_test(lengths_are_checked_first),
        cmocka_unit_test(what_is_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
