/* server/page.c: the web page. Its files (src/server/page/) are in the program, byte for byte; there is no build step.
 *
 * The page may load and ask this server alone: its Content-Security-Policy forbids scripts in the text, styles in the
 * text, frames and every other address, so that nothing a model writes can run or call home. */
#include "server/server_internal.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The paths are seen from the repository's root, where make runs. */
#define SCRIPT "text/javascript; charset=utf-8"
#define PAGE_FILES(X)                                                                                                  \
    X(index, "index.html", "text/html; charset=utf-8")                                                                 \
    X(style, "style.css", "text/css; charset=utf-8")                                                                   \
    X(icon, "icon.svg", "image/svg+xml")                                                                               \
    X(app, "app.js", SCRIPT)                                                                                           \
    X(chat, "chat.js", SCRIPT)                                                                                         \
    X(stream, "stream.js", SCRIPT)                                                                                     \
    X(pictures, "pictures.js", SCRIPT)                                                                                 \
    X(tools, "tools.js", SCRIPT)                                                                                       \
    X(markdown, "markdown.js", SCRIPT)                                                                                 \
    X(view, "view.js", SCRIPT)                                                                                         \
    X(live, "live.js", SCRIPT)                                                                                         \
    X(chart, "chart.js", SCRIPT)                                                                                       \
    X(settings, "settings.js", SCRIPT)                                                                                 \
    X(store, "store.js", SCRIPT)                                                                                       \
    X(format, "format.js", SCRIPT)                                                                                     \
    X(dom, "dom.js", SCRIPT)

#define EMBED(id, name, type)                                                                                          \
    extern const char page_##id[] __attribute__((visibility("hidden")));                                               \
    extern const char page_##id##_end[] __attribute__((visibility("hidden")));                                         \
    __asm__(".pushsection .rodata\n"                                                                                   \
            ".balign 16\n"                                                                                             \
            ".globl page_" #id "\n.hidden page_" #id "\n"                                                              \
            ".globl page_" #id "_end\n.hidden page_" #id "_end\n"                                                      \
            "page_" #id ":\n.incbin \"src/server/page/" name "\"\npage_" #id "_end:\n"                                 \
            ".byte 0\n.popsection\n");
PAGE_FILES(EMBED)

#define ENTRY(id, name, type) {name, type, page_##id, page_##id##_end, ""},
static struct {
    const char *name, *type, *begin, *end;
    char etag[20];
} files[] = {PAGE_FILES(ENTRY)};

static pthread_once_t page_once = PTHREAD_ONCE_INIT;

/* FNV-1a, 64 bits (Fowler, Noll, Vo): other bytes, other tag. */
static void make_tags(void) {
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        u64 h = 0xcbf29ce484222325;
        for (const char *p = files[i].begin; p < files[i].end; p++) h = (h ^ (u8)*p) * 0x100000001b3;
        snprintf(files[i].etag, sizeof files[i].etag, "\"%016llx\"", (unsigned long long)h);
    }
}

static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                             "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

void route_page(server *s, http_request *q, http_reply *r) {
    const char *name = !strcmp(q->path, "/") ? "index.html" : q->path + strlen("/page");
    size_t i = 0;
    name += *name == '/';
    while (i < COUNT_OF(files) && strcmp(files[i].name, name)) i++;
    if (i == COUNT_OF(files)) {
        api_error e;
        api_fail(&e, 404, NULL, NULL, "there is no %.200s here", q->path);
        reply_error(s, r, &e);
        return;
    }
    pthread_once(&page_once, make_tags);
    const char *have = http_header(q, "If-None-Match");
    r->status = have && (strstr(have, files[i].etag) || !strcmp(have, "*")) ? 304 : 200;
    r->type = files[i].type;
    if (r->status == 200) buf_add(&r->body, files[i].begin, (size_t)(files[i].end - files[i].begin));
    http_field(r, "ETag", files[i].etag);
    http_field(r, "Cache-Control", "no-cache"); /* kept, and asked about each time: a new program shows its new page */
    http_field(r, "Content-Security-Policy", policy);
    http_field(r, "Referrer-Policy", "no-referrer");
    http_field(r, "Cross-Origin-Opener-Policy", "same-origin");
    http_field(r, "Cross-Origin-Resource-Policy", "same-origin");
}
