#include "cmd/lib/client.h"

void client_request_free(client_request *r) { buf_free(&r->body); }

void client_answer_free(client_answer *a) {
    f64_list_free(&a->gaps);
    buf_free(&a->text);
    ids_free(&a->ids);
}

void client_tokens(client_answer *a, f64 t, i64 k) {
    k += a->unseen;
    a->unseen = 0;
    if (!a->first_s)
        a->first_s = t;
    else
        for (i64 i = 0; i < k; i++) f64_add(&a->gaps, (t - a->last_s) / (f64)k);
    a->last_s = t;
}
