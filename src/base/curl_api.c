#include "base/curl_api.h"
#include <dlfcn.h>
#include <pthread.h>

static const char *const curl_names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

static curl_api api;
static void *lib;

static status curl_load(err *e) {
    void *p = NULL;
    if (lib) return ST_OK;
    for (size_t i = 0; !p && i < COUNT_OF(curl_names); i++) p = dlopen(curl_names[i], RTLD_NOW | RTLD_LOCAL);
    if (!p)
        return err_set(e, ST_UNSUPPORTED, "requests over HTTP need libcurl (%s, Debian's package libcurl4): %s",
                       curl_names[0], dlerror());
#define CURL_LOAD(name)                                                                                                \
    if (!(*(void **)&api.name = dlsym(p, "curl_" #name)))                                                              \
        return err_set(e, ST_UNSUPPORTED, "libcurl has no curl_" #name "; 7.68 or newer is needed");
    CURL_API(CURL_LOAD)
#undef CURL_LOAD
    if (api.global_init(CURL_GLOBAL_DEFAULT)) return err_set(e, ST_UNSUPPORTED, "libcurl cannot be initialised");
    lib = p;
    return ST_OK;
}

status curl_api_open(const curl_api **out, err *e) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    status st = curl_load(e);
    pthread_mutex_unlock(&lock);
    *out = &api;
    return st;
}
