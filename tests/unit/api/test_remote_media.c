/* Pictures from allowed hosts: which URLs and addresses are refused, redirects, limits of size and time. The other side
 * is a thread here that answers one line of HTTP after the other. */
#include "unit.h"

#include "api/remote_media.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int listener;
static char local[32]; /* "127.0.0.1:PORT" */
static int asked;      /* requests that came */
static f64 seconds = 30;

/* /ok: three bytes. /size/N: as many. /slow: nothing. /to/URL: a redirect. /loop: to itself. Else 404. */
static void answer(int fd, const char *path) {
    char head[700];
    int n = 0;
    if (!strcmp(path, "/ok")) {
        dprintf(fd, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
    } else if ((n = atoi(path + (strncmp(path, "/size/", 6) ? strlen(path) : 6)))) {
        dprintf(fd, "HTTP/1.1 200 OK\r\n\r\n"); /* no length: until the end */
        for (int i = 0; i < n && write(fd, "x", 1) == 1; i++) continue;
    } else if (!strcmp(path, "/slow")) {
        usleep(1500000);
    } else if (!strncmp(path, "/to/", 4) || !strcmp(path, "/loop")) {
        snprintf(head, sizeof head, "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 4\r\n\r\nmove",
                 *path == '/' && path[1] == 'l' ? "/loop" : path + 4);
        dprintf(fd, "%s", head);
    } else {
        dprintf(fd, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    }
}

static void *serve(void *ud) {
    (void)ud;
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; close(fd)) {
        char line[2048] = "";
        if (read(fd, line, sizeof line - 1) <= 0) continue;
        asked++;
        char *path = strchr(line, ' ') + 1;
        *strchr(path, ' ') = 0;
        answer(fd, path);
    }
    return NULL;
}

static int start(void **state) {
    (void)state;
    pthread_t t;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&a, sizeof a) || listen(listener, 8) ||
        getsockname(listener, (struct sockaddr *)&a, &n) || pthread_create(&t, NULL, serve, NULL))
        return -1;
    signal(SIGPIPE, SIG_IGN); /* who has heard enough closes */
    snprintf(local, sizeof local, "127.0.0.1:%d", ntohs(a.sin_port));
    return pthread_detach(t);
}

/* "http://LOCAL" + path, from hosts[n]. */
static status fetch(const char *url, const char *const *hosts, int n, bool any_address, buf *out, err *e) {
    const remote_rules r = {hosts, n, 1000, seconds, any_address};
    *e = (err){0};
    buf_clear(out);
    return remote_fetch(url, &r, out, e);
}

static char *at(const char *path) {
    static char url[700];
    snprintf(url, sizeof url, "http://%s%s", local, path);
    return url;
}

static void expect(const char *url, status want, const char *word) {
    const char *const hosts[] = {"example.com", local};
    err e;
    buf out = {0};
    const status st = fetch(url, hosts, 2, true, &out, &e);
    if (st != want || !strstr(e.text, word))
        fail_msg("%s: %d, \"%s\", not %d with \"%s\"", url, st, e.text, want, word);
    if (want == ST_OK) assert_true(out.len == 3 && !memcmp(out.data, "abc", 3));
    buf_free(&out);
}

static void what_is_allowed(void **state) {
    (void)state;
    char path[100];
    expect(at("/ok"), ST_OK, "");
    expect(at("/to//ok"), ST_OK, "");
    snprintf(path, sizeof path, "/to/http://%s/ok", local);
    expect(at(path), ST_OK, "");
    expect(at("/nothing"), ST_INPUT, "404");
    expect(at("/loop"), ST_INPUT, "more than 3");
    expect(at("/size/5000"), ST_LIMIT, "1000 bytes");
    expect(at("/to/http://example.org/"), ST_INPUT, "example.org, port 80");
    expect(at("/to/file:///etc/passwd"), ST_INPUT, "URL");
    seconds = 0.3;
    expect(at("/slow"), ST_LIMIT, "0.3 seconds");
    seconds = 30;
}

static void what_is_refused(void **state) {
    (void)state;
    const int before = asked;
    char user[64], other[64];
    snprintf(user, sizeof user, "http://me:secret@%s/ok", local);
    snprintf(other, sizeof other, "http://127.0.0.1:1/ok");
    expect(user, ST_INPUT, "credentials");
    expect(other, ST_INPUT, "port 1,");
    expect("http://127.0.0.1/ok", ST_INPUT, "port 80");
    expect("http://example.com:8080/", ST_INPUT, "port 8080");
    expect("http://example.com.evil.net/", ST_INPUT, "example.com.evil.net");
    expect("ftp://example.com/", ST_INPUT, "ftp");
    expect("gopher://example.com/", ST_INPUT, "");
    expect("http://", ST_INPUT, "not a URL");
    assert_int_equal(asked, before);
    assert_false(remote_is_url("file:///etc/passwd") || remote_is_url("data:,") || remote_is_url(""));
    assert_true(remote_is_url("HTTPS://x"));
}

/* An allowed name may mean an address of the server's own network. */
static void private_addresses(void **state) {
    (void)state;
    static const char *const bad[] = {
        "127.0.0.1", "localhost",          "10.1.2.3",        "172.31.0.1", "192.168.1.1", "169.254.1.1", "100.64.0.1",
        "0.0.0.0",   "224.0.0.1",          "255.255.255.255", "2130706433", "0x7f.1",      "[::1]",       "[fe80::1]",
        "[fd00::1]", "[::ffff:127.0.0.1]", "[2002:7f00:1::]", "[ff02::1]",  "[::]"};
    err e;
    buf out = {0};
    const int before = asked;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char url[64], allowed[64];
        const char *hosts[] = {allowed, bad[i], "127.0.0.1", local};
        snprintf(url, sizeof url, "http://%s%s/ok", bad[i], i < 2 ? strchr(local, ':') : "");
        snprintf(allowed, sizeof allowed, "%s%s", bad[i], strchr(local, ':'));
        const status st = fetch(url, hosts, 4, false, &out, &e);
        if (st == ST_OK || (!strstr(e.text, "private") && !strstr(e.text, "none of the hosts") &&
                            !strstr(e.text, "cannot be fetched")))
            fail_msg("%s: %d, \"%s\"", url, st, e.text);
        if (i < 10 && !strstr(e.text, "private")) fail_msg("%s: \"%s\"", url, e.text);
    }
    assert_int_equal(asked, before);
    buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_allowed), cmocka_unit_test(what_is_refused),
                                       cmocka_unit_test(private_addresses)};
    return cmocka_run_group_tests(tests, start, NULL);
}
