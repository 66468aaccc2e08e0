#include "server/kv/kv_pull.h"
#include "base/json.h"
#include "base/log.h"
#include <string.h>
#include <strings.h>

static const f64 CONNECT_S = 5;

static status take_record(void *ud, const kv_head *h, const u8 *data, err *e) {
    kv_puller *p = ud;
    i32 page = 0;
    if (h->kind == KV_RECORD_WAIT) return ST_OK;
    if (h->kind == KV_RECORD_END) return p->ended = true, ST_OK;
    if (h->kind == KV_RECORD_FULL) p->full = true;
    if (h->kind == KV_RECORD_ERROR || h->kind == KV_RECORD_FULL)
        return err_set(e, ST_PEER, "%.*s", (int)h->bytes, (const char *)data);
    status st = p->q->place(p->q->ud, h->number, &page, e);
    if (st == ST_OK) st = kv_mover_write(p->mover, page, e); /* the reader has put it together there */
    if (st == ST_OK) p->q->written(p->q->ud, h->number);
    return st;
}

static long status_of(const kv_puller *p) {
    long code = 0;
    p->c->easy_getinfo(p->h, CURLINFO_RESPONSE_CODE, &code);
    return code;
}

/* A header's value, if it has that name. */
static bool header_value(const char *line, size_t len, const char *name, const char **value, size_t *n) {
    size_t at = strlen(name);
    if (len <= at || strncasecmp(line, name, at)) return false;
    while (at < len && line[at] == ' ') at++;
    while (len > at && (line[len - 1] == '\r' || line[len - 1] == '\n')) len--;
    *value = line + at;
    *n = len - at;
    return true;
}

/* The id by which other requests can ask for pages of the same transfer; whether to come back. */
static size_t take_header(char *line, size_t size, size_t n, void *ud) {
    kv_puller *p = ud;
    const char *value;
    size_t len;
    p->answers = true;
    if (header_value(line, size * n, "x-request-id:", &value, &len) && len < sizeof p->ticket)
        memcpy(p->ticket, value, len), p->ticket[len] = 0;
    if (header_value(line, size * n, "retry-after:", &value, &len)) p->come_back = true;
    if (header_value(line, size * n, "x-should-retry:", &value, &len))
        p->stay_away = len == 5 && !strncasecmp(value, "false", len);
    return size * n;
}

/* Full, not at fault: it says to come back, or had no connection free and closed this one without a word. (One that is
 * ending says to stay away.) */
static bool is_busy(const kv_puller *p, int rc, long code) {
    if (p->full) return true;
    if (code == 429 || code == 503) return p->come_back && !p->stay_away;
    return !p->answers && (rc == CURLE_GOT_NOTHING || rc == CURLE_RECV_ERROR || rc == CURLE_SEND_ERROR);
}

static size_t take_answer(char *data, size_t size, size_t n, void *ud) {
    kv_puller *p = ud;
    const bool first = !p->answer.len && !p->reader.n_head && p->ticket[0];
    p->heard_s = now_s();
    if (!p->q->pages || status_of(p) != 200) {
        if (p->answer.len + size * n <= KV_ANSWER_MOST) buf_add(&p->answer, data, size * n); /* longer ones are cut */
        return p->answer.failed ? 0 : size * n;
    }
    if (first && p->q->begins) p->q->begins(p->q->ud, p->ticket);
    p->ticket[0] = 0;
    return kv_reader_take(&p->reader, data, size * n, take_record, p, &p->why) == ST_OK ? size * n : 0;
}

/* Called about once a second, and whenever something happens. */
static int on_progress(void *ud, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    kv_puller *p = ud;
    (void)a, (void)b, (void)c, (void)d;
    p->silent = now_s() - p->heard_s > p->q->silence_s;
    p->unwanted = p->q->wanted && !p->q->wanted(p->q->ud);
    return p->silent || p->unwanted;
}

static bool puller_setup(kv_puller *p, char *detail) {
    const kv_question *q = p->q;
    bool ok = true;
#define SET(option, value) ok = ok && p->c->easy_setopt(p->h, option, value) == CURLE_OK
    SET(CURLOPT_URL, q->url);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_USERAGENT, "moonlet/" MOON_VERSION);
    SET(CURLOPT_HTTPHEADER, q->headers);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)(CONNECT_S * 1e3));
    SET(CURLOPT_BUFFERSIZE, 512L << 10);
    SET(CURLOPT_FORBID_REUSE, 1L); /* there they are counted, and have a thread each */
    SET(CURLOPT_HEADERFUNCTION, take_header);
    SET(CURLOPT_HEADERDATA, p);
    SET(CURLOPT_WRITEFUNCTION, take_answer);
    SET(CURLOPT_WRITEDATA, p);
    SET(CURLOPT_NOPROGRESS, 0L);
    SET(CURLOPT_XFERINFOFUNCTION, on_progress);
    SET(CURLOPT_XFERINFODATA, p);
    SET(CURLOPT_ERRORBUFFER, detail);
    SET(CURLOPT_HTTPGET, 1L);
    if (q->body) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDS, q->body->data);
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->body->len);
    }
#undef SET
    return ok;
}

/* What a server's JSON says of a failure, or its first bytes. */
static status told(const kv_puller *p, long code, err *e) {
    const char *raw = p->answer.len ? p->answer.data : "";
    json_t *v = json_parse(raw, p->answer.len, "an answer", NULL);
    const char *text = json_string_value(json_object_get(json_object_get(v, "error"), "message"));
    status st = text ? err_set(e, ST_PEER, "HTTP %ld: %s", code, text)
                     : err_set(e, ST_PEER, "HTTP %ld%s%.80s", code, *raw ? ": " : "", raw);
    json_decref(v);
    return st;
}

status kv_puller_ask(kv_puller *p, const kv_question *q, long *code, err *e) {
    char detail[CURL_ERROR_SIZE] = "";
    *code = 0;
    p->q = q;
    p->why = (err){0};
    p->silent = p->unwanted = p->ended = p->busy = p->full = p->answers = p->come_back = p->stay_away = false;
    p->ticket[0] = 0;
    p->heard_s = now_s();
    kv_reader_restart(&p->reader);
    buf_clear(&p->answer);
    if (!puller_setup(p, detail)) return err_set(e, ST_UNSUPPORTED, "libcurl lacks an option; 7.85 or newer is needed");
    const int rc = (int)p->c->easy_perform(p->h);
    p->c->easy_setopt(p->h, CURLOPT_ERRORBUFFER, NULL);
    *code = status_of(p);
    p->busy = !p->unwanted && !p->silent && is_busy(p, rc, *code);
    p->full = p->full || (p->busy && *code == 429);
    if (p->why.code != ST_OK) return err_set(e, p->why.code, "%s", p->why.text);
    if (p->unwanted) return err_set(e, ST_CANCELLED, "nobody waits for it any more");
    if (p->silent) return err_set(e, ST_PEER, "nothing came for %g s (--prefill-timeout)", q->silence_s);
    if (rc) return err_set(e, ST_PEER, "%s", *detail ? detail : p->c->easy_strerror(rc));
    if (*code != 200) return told(p, *code, e);
    return !q->pages || p->ended ? ST_OK : err_set(e, ST_PEER, "its answer ended without the last page");
}

static bool are_numbers(void *g, const u8 *page, u64 from, u64 to) { return engine_kv_finite(g, page, from, to); }

status kv_puller_open(kv_puller *p, const curl_api *c, engine *g, err *e) {
    *p = (kv_puller){.c = c, .answer.max = KV_ANSWER_MOST};
    if (!(p->h = c->easy_init())) return err_nomem(e, "a transfer of KV pages", 0);
    status st = kv_mover_open(&p->mover, g, e);
    if (st != ST_OK) return st;
    p->reader = (kv_reader){
        .page = kv_mover_page(p->mover), .page_bytes = engine_kv_page_bytes(g), .numbers = are_numbers, .ud = g};
    return kv_reader_open(&p->reader, e);
}

void kv_puller_close(kv_puller *p) {
    if (p->h) p->c->easy_cleanup(p->h);
    kv_mover_close(p->mover);
    kv_reader_close(&p->reader);
    buf_free(&p->answer);
}
