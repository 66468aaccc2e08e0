#include "cmd/bench/serving/workload.h"
#include "cmd/lib/text_corpus.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What an item's request points to. */
typedef struct {
    buf text;
    ids_buf ids;
    json_t *messages;
    const json_t *turn; /* trace: what is appended, in the file */
    bool as_ids;
} owned;

static status add_items(workload *w, i64 n, err *e) {
    u64 bytes;
    if (!mul_size((u64)n, sizeof *w->items, &bytes) || !(w->items = calloc((size_t)n + 1, sizeof *w->items)))
        return err_nomem(e, "the requests", (u64)n * sizeof *w->items);
    for (w->n = 0; w->n < n; w->n++)
        if (!(w->items[w->n].own = calloc(1, sizeof(owned)))) return err_nomem(e, "a request", sizeof(owned));
    return ST_OK;
}

void workload_free(workload *w) {
    for (i64 i = 0; i < w->n; i++) {
        owned *o = w->items[i].own;
        buf_free(&o->text);
        ids_free(&o->ids);
        json_decref(o->messages);
        json_decref((json_t *)(uintptr_t)o->turn);
        free(o);
        client_request_free(&w->items[i].q);
        client_answer_free(&w->items[i].a);
    }
    free(w->items);
    *w = (workload){0};
}

static status set_text(load_item *it, const char *text, size_t len, err *e) {
    owned *o = it->own;
    buf_add(&o->text, text, len);
    if (o->text.failed) return err_nomem(e, "a prompt", len);
    it->q.text = o->text.data ? o->text.data : "";
    it->q.text_len = o->text.len;
    return ST_OK;
}

/* The ids as they are, or as the text that they decode to. */
static status set_ids(const workload *w, load_item *it, const i32 *ids, i64 n, bool as_ids, err *e) {
    owned *o = it->own;
    it->input_tokens = n;
    if (as_ids) {
        if (ids != o->ids.data) ids_append(&o->ids, ids, (size_t)n);
        if (o->ids.failed) return err_nomem(e, "a prompt", (u64)n * 4);
        it->q.ids = o->ids.data;
        it->q.n_ids = n;
        return ST_OK;
    }
    decode_stream d = {0};
    for (i64 i = 0; i < n; i++) decode_stream_add(&d, w->tok, ids[i], false, &o->text, NULL);
    decode_stream_end(&d, &o->text);
    return set_text(it, "", 0, e);
}

/* ---- random ---- */

static void draw_lengths(workload *w, const workload_options *o) {
    for (i64 i = 0; i < w->n; i++)
        w->items[i].input_tokens =
            mt_randint(&w->rng, max_i64((i64)((f64)o->input_len * o->range_ratio), 1), o->input_len);
    for (i64 i = 0; i < w->n; i++)
        w->items[i].q.max_tokens =
            mt_randint(&w->rng, max_i64((i64)((f64)o->output_len * o->range_ratio), 1), o->output_len);
}

/* Prompt i counts up from a random id, through the vocabulary without its special tokens. */
static status random_ids(workload *w, const workload_options *o, err *e) {
    status st = add_items(w, o->n, e);
    if (st != ST_OK) return st;
    const i64 vocab = tokenizer_n_ranks(w->tok);
    draw_lengths(w, o);
    for (i64 i = 0; i < w->n && st == ST_OK; i++) {
        load_item *it = &w->items[i];
        ids_buf *ids = &((owned *)it->own)->ids;
        i64 offset = mt_randint(&w->rng, 0, vocab - 1);
        for (i64 j = 0; j < it->input_tokens; j++) ids_add(ids, (i32)((offset + i + j) % vocab));
        st = set_ids(w, it, ids->data, (i64)ids->len, true, e);
    }
    return st;
}

/* Prompt i: the first tokens of `ids`, repeated when there are too few. */
static status cut_prompt(workload *w, load_item *it, const ids_buf *ids, size_t from, bool as_ids, err *e) {
    ids_buf cut = {0};
    for (i64 j = 0; j < it->input_tokens; j++) ids_add(&cut, ids->data[(from + (size_t)j) % ids->len]);
    status st = cut.failed ? err_nomem(e, "a prompt", (u64)it->input_tokens * 4)
                           : set_ids(w, it, cut.data, it->input_tokens, as_ids, e);
    ids_free(&cut);
    return st;
}

/* Plain text: prompt i begins at a random token of the file. */
static status random_plain(workload *w, const workload_options *o, const buf *text, err *e) {
    ids_buf ids = {0};
    status st = tokenizer_encode(w->tok, text->data, text->len, false, &ids, e);
    for (i64 i = 0; i < w->n && st == ST_OK; i++)
        st = cut_prompt(w, &w->items[i], &ids, (size_t)mt_randint(&w->rng, 0, (i64)ids.len - 1), o->as_ids, e);
    ids_free(&ids);
    return st;
}

static status shuffled(const texts *t, u32 seed, bool sharegpt_only, i64 **order, i64 *n, err *e) {
    i64 all = (i64)json_array_size(t->items);
    *order = calloc((size_t)all + 1, sizeof **order);
    if (!*order) return err_nomem(e, "the order of the texts", (u64)all * 8);
    *n = 0;
    for (i64 i = 0; i < all; i++) {
        const json_t *item = json_array_get(t->items, (size_t)i);
        if (text_of(item) && (!sharegpt_only || is_sharegpt(item))) (*order)[(*n)++] = i;
    }
    mt19937 python;
    mt_seed_python(&python, seed);
    mt_shuffle(&python, *order, *n);
    return ST_OK;
}

static status random_items(workload *w, const workload_options *o, const texts *t, err *e) {
    i64 *order = NULL, n = 0, have = 0;
    const bool sharegpt = is_sharegpt(json_array_get(t->items, 0));
    status st = shuffled(t, o->seed, sharegpt, &order, &n, e);
    for (i64 i = 0; i < n && have < w->n && st == ST_OK; i++) {
        const json_t *text = text_of(json_array_get(t->items, (size_t)order[i]));
        ids_buf ids = {0};
        st = tokenizer_encode(w->tok, json_string_value(text), json_string_length(text), false, &ids, e);
        if (st == ST_OK && ids.len) st = cut_prompt(w, &w->items[have++], &ids, 0, o->as_ids, e);
        ids_free(&ids);
    }
    free(order);
    if (st == ST_OK && have < w->n)
        st = err_set(e, ST_INPUT, "%s holds %lld texts, --num-prompts asks for %lld", o->path, (long long)have,
                     (long long)w->n);
    return st;
}

static status random_text(workload *w, const workload_options *o, const texts *t, err *e) {
    status st = add_items(w, o->n, e);
    if (st != ST_OK) return st;
    draw_lengths(w, o);
    return t->items ? random_items(w, o, t, e) : random_plain(w, o, &t->plain, e);
}

/* ---- real prompts ---- */

static status count_tokens(const workload *w, const json_t *text, i64 *n, err *e) {
    ids_buf ids = {0};
    status st = tokenizer_encode(w->tok, json_string_value(text), json_string_length(text), false, &ids, e);
    *n = (i64)ids.len;
    ids_free(&ids);
    return st;
}

static status set_prompt(workload *w, load_item *it, const json_t *text, bool as_ids, err *e) {
    if (!as_ids) {
        status st = count_tokens(w, text, &it->input_tokens, e);
        return st == ST_OK ? set_text(it, json_string_value(text), json_string_length(text), e) : st;
    }
    ids_buf *ids = &((owned *)it->own)->ids;
    status st = tokenizer_encode(w->tok, json_string_value(text), json_string_length(text), true, ids, e);
    return st == ST_OK ? set_ids(w, it, ids->data, (i64)ids->len, true, e) : st;
}

static status sharegpt(workload *w, const workload_options *o, const texts *t, err *e) {
    i64 *order = NULL, n = 0, have = 0;
    status st = shuffled(t, o->seed, true, &order, &n, e);
    if (st == ST_OK) st = add_items(w, min_i64(n, o->n), e);
    for (i64 i = 0; i < n && have < w->n && st == ST_OK; i++) {
        const json_t *item = json_array_get(t->items, (size_t)order[i]);
        i64 in = 0, out = o->fixed_output;
        st = count_tokens(w, text_of(item), &in, e);
        if (st == ST_OK && !out && reply_of(item)) st = count_tokens(w, reply_of(item), &out, e);
        if (st != ST_OK || in < 2 || out < 2) continue; /* too short to measure, as the reference has it */
        w->items[have].q.max_tokens = out;
        st = set_prompt(w, &w->items[have++], text_of(item), o->as_ids, e);
    }
    free(order);
    if (st == ST_OK && !have) st = err_set(e, ST_INPUT, "%s: no conversation of ShareGPT's form", o->path);
    for (i64 i = have; st == ST_OK && i < w->n; i++) free(w->items[i].own);
    if (st == ST_OK) w->n = have;
    return st;
}

static status output_of(const json_t *o, const workload_options *wo, i64 *out, err *e) {
    *out = wo->fixed_output;
    if (*out) return ST_OK;
    status st = json_get_i64(o, "output_len", 1, 1e9, false, out, e);
    if (st == ST_OK && !*out) st = json_get_i64(o, "max_tokens", 1, 1e9, false, out, e);
    if (st == ST_OK && !*out) st = err_set(e, ST_INPUT, "no \"output_len\": give it, or --sharegpt-output-len for all");
    return st;
}

static status workload_read_ids(const workload *w, load_item *it, const json_t *ids, err *e) {
    ids_buf *b = &((owned *)it->own)->ids;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *v = json_array_get(ids, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= tokenizer_vocab_size(w->tok))
            return err_set(e, ST_INPUT, "ids[%zu] is no token id of the vocabulary", i);
        ids_add(b, (i32)json_integer_value(v));
    }
    return set_ids(w, it, b->data, (i64)b->len, true, e);
}

/* {"prompt" | "messages" | "ids", "output_len"} */
static status one_prompt(workload *w, const workload_options *o, const json_t *item, load_item *it, err *e) {
    const json_t *messages = json_object_get(item, "messages"), *ids = json_object_get(item, "ids");
    status st = output_of(item, o, &it->q.max_tokens, e);
    if (st != ST_OK) return st;
    if (json_is_array(messages)) {
        owned *own = it->own;
        it->q.messages = own->messages = json_incref((json_t *)messages);
        it->input_tokens = -1;
        return ST_OK;
    }
    if (json_is_array(ids) && json_array_size(ids)) return workload_read_ids(w, it, ids, e);
    if (text_of(item)) return set_prompt(w, it, text_of(item), o->as_ids, e);
    return err_set(e, ST_INPUT, "neither \"prompt\" nor \"messages\" nor \"ids\"");
}

static status workload_prompts(workload *w, const workload_options *o, const texts *t, err *e) {
    status st = add_items(w, min_i64((i64)json_array_size(t->items), o->n), e);
    for (i64 i = 0; i < w->n && st == ST_OK; i++)
        if ((st = one_prompt(w, o, json_array_get(t->items, (size_t)i), &w->items[i], e)) != ST_OK)
            err_prefix(e, "%s item %lld", o->path, (long long)i + 1);
    return st;
}

/* ---- traces ---- */

static status one_turn(workload *w, const workload_options *o, const json_t *turn, load_item *it, i64 k, err *e) {
    owned *own = it->own;
    own->turn = json_incref((json_t *)turn);
    own->as_ids = o->as_ids;
    it->turn = k;
    it->follows = k > 0;
    if (!o->no_delays) {
        status st = json_get_f64(turn, "delay_s", 0, 86400, false, &it->delay_s, e);
        if (st != ST_OK) return st;
    }
    if (!k) return one_prompt(w, o, turn, it, e);
    if (!text_of(turn) && !json_is_array(json_object_get(turn, "messages")))
        return err_set(e, ST_INPUT, "neither \"prompt\" nor \"messages\"");
    it->input_tokens = -1;
    return output_of(turn, o, &it->q.max_tokens, e);
}

static status trace(workload *w, const workload_options *o, const texts *t, err *e) {
    i64 conversations = min_i64((i64)json_array_size(t->items), o->n), n = 0;
    for (i64 i = 0; i < conversations; i++)
        n += (i64)json_array_size(json_object_get(json_array_get(t->items, (size_t)i), "turns"));
    status st = add_items(w, n, e);
    for (i64 i = 0, at = 0; i < conversations && st == ST_OK; i++) {
        const json_t *turns = json_object_get(json_array_get(t->items, (size_t)i), "turns");
        if (!json_array_size(turns)) st = err_set(e, ST_INPUT, "no \"turns\"");
        for (size_t k = 0; k < json_array_size(turns) && st == ST_OK; k++)
            st = one_turn(w, o, json_array_get(turns, k), &w->items[at++], (i64)k, e);
        if (st != ST_OK) err_prefix(e, "%s item %lld", o->path, (long long)i + 1);
    }
    return st;
}

static status extend_messages(const load_item *before, load_item *it, err *e) {
    owned *own = it->own;
    const owned *old = before->own;
    own->messages = json_copy(old->messages); /* a list of its own; the messages are shared */
    const char *said = before->a.text.data ? before->a.text.data : "";
    json_t *answer = json_pack("{s:s, s:s#}", "role", "assistant", "content", said, before->a.text.len);
    if (!answer || json_array_append_new(own->messages, answer) ||
        json_array_extend(own->messages, json_object_get(own->turn, "messages")))
        return err_nomem(e, "a turn", 0);
    it->q.messages = own->messages;
    return ST_OK;
}

status workload_extend(void *ud, const load_item *before, load_item *it, err *e) {
    workload *w = ud;
    owned *own = it->own;
    const owned *old = before->own;
    const json_t *text = text_of(own->turn);
    if (before->q.messages) {
        if (!text) return extend_messages(before, it, e);
        return err_set(e, ST_INPUT, "a turn with \"prompt\" after one with \"messages\"");
    }
    if (!text) return err_set(e, ST_INPUT, "a turn with \"messages\" after one with \"prompt\"");
    const char *s = json_string_value(text);
    size_t len = json_string_length(text);
    if (before->q.ids) {
        if (!before->a.ids.len && before->a.output_tokens)
            return err_set(e, ST_UNSUPPORTED,
                           "this server does not return token ids, so turns cannot be continued as ids");
        ids_append(&own->ids, old->ids.data, old->ids.len);
        ids_append(&own->ids, before->a.ids.data, before->a.ids.len);
        status st = tokenizer_encode(w->tok, s, len, true, &own->ids, e);
        return st == ST_OK ? set_ids(w, it, own->ids.data, (i64)own->ids.len, true, e) : st;
    }
    buf_add(&own->text, before->q.text, before->q.text_len);
    buf_add(&own->text, before->a.text.data, before->a.text.len);
    return set_text(it, s, len, e);
}

status workload_count(workload *w, err *e) {
    for (i64 i = 0; i < w->n; i++) {
        load_item *it = &w->items[i];
        if (it->input_tokens >= 0) continue;
        it->input_tokens = max_i64(it->a.prompt_tokens, 0);
        if (it->a.prompt_tokens >= 0 || !it->q.text) continue;
        ids_buf ids = {0};
        status st = tokenizer_encode(w->tok, it->q.text, it->q.text_len, false, &ids, e);
        it->input_tokens = (i64)ids.len;
        ids_free(&ids);
        if (st != ST_OK) return st;
    }
    return ST_OK;
}

status workload_make(workload *w, const workload_options *o, const tokenizer *t, err *e) {
    static const struct {
        const char *name;
        status (*make)(workload *w, const workload_options *o, const texts *t, err *e);
        bool plain;
    } kinds[] = {{"random", random_text, true},
                 {"sharegpt", sharegpt, false},
                 {"jsonl", workload_prompts, false},
                 {"trace", trace, false}};
    *w = (workload){.name = o->name, .tok = t};
    mt_seed_numpy(&w->rng, o->seed);
    if (!strcmp(o->name, "random-ids") || (!strcmp(o->name, "random") && !o->path)) {
        w->name = "random-ids";
        return random_ids(w, o, e);
    }
    if (!o->path) return err_set(e, ST_INPUT, "--dataset-name %s needs --dataset-path", o->name);
    texts data;
    status st = texts_read(&data, o->path, e);
    for (size_t i = 0; i < COUNT_OF(kinds) && st == ST_OK; i++)
        if (!strcmp(o->name, kinds[i].name))
            st = data.items || kinds[i].plain ? kinds[i].make(w, o, &data, e)
                                              : err_set(e, ST_INPUT, "%s holds no JSON", o->path);
    texts_free(&data);
    return st;
}
