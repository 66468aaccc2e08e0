/* base/curl_api.h: libcurl, opened when the first request over HTTP is made. Its archive cannot be linked (Debian
 * ships none for most of what it needs itself: Kerberos, LDAP, RTMP, SSH, nghttp2), and few need it. */
#ifndef BASE_CURL_API_H
#define BASE_CURL_API_H
#define CURL_DISABLE_TYPECHECK
#include "base/err.h"
#include <curl/curl.h>

#define CURL_API(X)                                                                                                    \
    X(global_init)                                                                                                     \
    X(easy_init)                                                                                                       \
    X(easy_setopt)                                                                                                     \
    X(easy_getinfo)                                                                                                    \
    X(easy_strerror)                                                                                                   \
    X(easy_perform)                                                                                                    \
    X(easy_cleanup)                                                                                                    \
    X(url)                                                                                                             \
    X(url_set)                                                                                                         \
    X(url_get)                                                                                                         \
    X(url_cleanup)                                                                                                     \
    X(free)                                                                                                            \
    X(multi_init)                                                                                                      \
    X(multi_setopt)                                                                                                    \
    X(multi_add_handle)                                                                                                \
    X(multi_remove_handle)                                                                                             \
    X(multi_socket_action)                                                                                             \
    X(multi_info_read)                                                                                                 \
    X(multi_cleanup)                                                                                                   \
    X(multi_strerror)                                                                                                  \
    X(slist_append)                                                                                                    \
    X(slist_free_all)

#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt
typedef struct {
#define CURL_MEMBER(name) __typeof__(&curl_##name) name;
    CURL_API(CURL_MEMBER)
#undef CURL_MEMBER
} curl_api;

/* The same table every time, for any thread; ST_UNSUPPORTED says what to install. */
status curl_api_open(const curl_api **out, err *e);

#endif
