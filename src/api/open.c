/* api/open.c: a model's folder becomes a moon_engine. */
#include "api/api.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)MOON_NOMEM == (int)ST_NOMEM && (int)MOON_IO == (int)ST_IO && (int)MOON_FORMAT == (int)ST_FORMAT &&
                   (int)MOON_INPUT == (int)ST_INPUT && (int)MOON_UNSUPPORTED == (int)ST_UNSUPPORTED &&
                   (int)MOON_LIMIT == (int)ST_LIMIT && (int)MOON_NUMERIC == (int)ST_NUMERIC &&
                   (int)MOON_DEVICE == (int)ST_DEVICE && (int)MOON_CANCELLED == (int)ST_CANCELLED,
               "moon_status mirrors status");
_Static_assert(sizeof(((moon_error *)0)->text) == sizeof(((err *)0)->text), "error texts have one size");

moon_status api_result(status st, const err *e, moon_error *out) {
    if (out) {
        out->status = (moon_status)st;
        memcpy(out->text, e->text, sizeof out->text);
        if (st != ST_OK && !out->text[0]) snprintf(out->text, sizeof out->text, "%s", status_text(st));
    }
    return (moon_status)st;
}

const char *moon_version(void) { return MOON_VERSION; }
const char *moon_plan(const moon_engine *m) { return engine_plan(m->engine); }
const char *moon_template(const moon_engine *m) { return m->template_line; }

static status api_choose_template(moon_engine *m, const moon_options *o, err *e) {
    const char *why = "asked for";
    if (o->chat_template) {
        status st = chat_template_parse(&m->template, o->chat_template, e);
        if (st != ST_OK) return st;
    } else {
        m->template = chat_template_of(o->model_dir, engine_config(m->engine)->model_type, m->tok, &why);
    }
    snprintf(m->template_line, sizeof m->template_line, "chat template %s (%s)", chat_template_name(m->template), why);
    return ST_OK;
}

static status api_open_parts(moon_engine *m, const moon_options *o, err *e) {
    const engine_options eo = {.model_dir = o->model_dir,
                               .device = o->device,
                               .cpu_mask = o->cpu_mask,
                               .kv_dtype = o->kv_cache_dtype,
                               .threads = o->threads,
                               .context = o->context_length,
                               .chunk = o->prefill_chunk,
                               .load_format = o->load_format,
                               .moe_format = o->moe_format,
                               .tuned = o->tuned,
                               .verify = o->verify,
                               .overrides = o->overrides,
                               .n_overrides = o->n_overrides,
                               .eager = o->disable_cuda_graph,
                               .tp = o->tp,
                               .pp = o->pp,
                               .pp_layers = o->pp_layers,
                               .dcp = o->dcp,
                               .ep = o->ep,
                               .ep_redundant = o->ep_num_redundant_experts,
                               .ep_placement = o->init_expert_location,
                               .eplb_steps = o->eplb_rebalance_num_iterations,
                               .gpus = o->gpus,
                               .numa_node = o->numa_node,
                               .dist_timeout = o->dist_timeout,
                               .tp_slice = o->tp_slice,
                               .deterministic = o->deterministic,
                               .disable_fused = o->disable_fused,
                               .nccl = o->disable_custom_all_reduce,
                               .dp_attention = o->enable_dp_attention,
                               .language_only = o->language_model_only,
                               .draft_dir = o->draft_dir,
                               .draft_found = o->draft_optional,
                               .draft_steps = !o->draft_dir       ? 0
                                              : o->draft_topk > 1 ? o->draft_steps
                                                                  : o->draft_tokens,
                               .draft_topk = o->draft_dir ? o->draft_topk : 0,
                               .draft_nodes = o->draft_tokens,
                               .max_running = 1};
    status st = engine_open(&m->engine, &eo, e);
    if (st == ST_OK) st = tokenizer_open(&m->tok, o->model_dir, e);
    if (st != ST_OK) return st;
    const model_config *c = engine_config(m->engine);
    if (tokenizer_vocab_size(m->tok) > c->vocab)
        return err_set(e, ST_FORMAT, "%s: the tokenizer has %d ids, config.json's vocab_size is %lld", o->model_dir,
                       tokenizer_vocab_size(m->tok), (long long)c->vocab);
    st = api_choose_template(m, o, e);
    const scheduler_options so = {.on_events = api_on_events, .draft_tokens = o->draft_tokens, .manual = true};
    if (st == ST_OK) st = scheduler_open(&m->scheduler, m->engine, &so, e);
    return st != ST_OK ? st : stops_of(c->eos, c->n_eos, m->tok, &m->stops, e);
}

moon_status moon_open(moon_engine **out, const moon_options *o, moon_error *error) {
    err e = {0};
    *out = NULL;
    if (!o || o->size != sizeof *o)
        return api_result(err_set(&e, ST_INPUT, "moon_options.size is not that of this version (%zu)", sizeof *o), &e,
                          error);
    if (!o->model_dir) return api_result(err_set(&e, ST_INPUT, "moon_options.model_dir is not set"), &e, error);
    moon_engine *m = calloc(1, sizeof *m);
    if (!m) return api_result(err_nomem(&e, "the engine", sizeof *m), &e, error);
    status st = api_open_parts(m, o, &e);
    if (st != ST_OK) {
        moon_close(m);
        return api_result(st, &e, error);
    }
    *out = m;
    return api_result(ST_OK, &e, error);
}

void moon_close(moon_engine *m) {
    if (!m) return;
    scheduler_close(m->scheduler);
    token_trie_close(m->trie);
    tokenizer_close(m->tok);
    engine_close(m->engine);
    ids_free(&m->stops);
    free(m);
}
