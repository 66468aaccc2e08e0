/* Host, Origin and Sec-Fetch-Site, as any client may send them: three lines. */
#include "server/http/origin.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);
int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    static const char *const origins[] = {"https://app.example"}, *const hosts[] = {"moon.example"};
    const origin_rules r = {.origins = origins, .hosts = hosts, .n_origins = 1, .n_hosts = 1};
    char *text = malloc(size + 1), *part[3] = {0};
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    char *rest = text;
    for (int i = 0; i < 3; i++) part[i] = strsep(&rest, "\n");
    const origin_request q = {
        .host = part[0], .origin = part[1], .fetch_site = part[2], .loopback = size & 1, .page = size & 2};
    (void)origin_judge(&r, &q);
    const char *const one[] = {text};
    const origin_rules given = {.origins = one, .hosts = one, .n_origins = 1, .n_hosts = 1};
    (void)origin_check_rules(&given, NULL);
    free(text);
    return 0;
}
