/* server/http/gnutls_stub.h: libmicrohttpd without GnuTLS.
 *
 * The distribution's libmicrohttpd.a is built with HTTPS and refers to GnuTLS, of whose own dependencies some exist as
 * shared libraries only. Moonlet speaks plain HTTP (a reverse proxy does TLS), so the few GnuTLS functions it names are
 * defined here and say no: the program stays one file without them. */
#ifndef SERVER_HTTP_GNUTLS_STUB_H
#define SERVER_HTTP_GNUTLS_STUB_H

void gnutls_stub(void); /* does nothing; whoever calls it gets the definitions linked in */

#endif
