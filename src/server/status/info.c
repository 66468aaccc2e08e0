/* server/status/info.c: what a server tells of itself, and its levers. */
#include "base/log.h"
#include "server/server_internal.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void text_reply(http_reply *r, int status, const char *text) {
    r->status = status;
    r->type = "text/plain; charset=utf-8";
    buf_str(&r->body, text);
}

/* Alive, and not stuck: the engine's last step (or idling) ended a short while ago. */
static const char *health_word(server *s, const sched_stats *st) {
    bool stuck = st->since_step_s > s->o.watchdog_s, draining = st->draining || atomic_load(&s->draining);
    return st->broken ? "broken" : stuck ? "stuck" : draining ? "draining" : "ok";
}

void route_health(server *s, http_request *q, http_reply *r) {
    (void)q;
    sched_stats st;
    scheduler_stats(s->sched, &st);
    const char *word = health_word(s, &st);
    r->status = strcmp(word, "ok") ? 503 : 200;
    if (r->status == 503) r->retry_after = 5;
    buf_fmt(&r->body, "{\"status\":\"%s\",\"last_step_age_s\":%.3f,\"running\":%lld,\"queued\":%lld,\"uptime_s\":%.1f",
            word, st.since_step_s, (long long)st.running, (long long)st.queued, now_s() - s->started_s);
    if (st.broken) {
        buf_str(&r->body, ",\"fault\":");
        buf_json_str(&r->body, st.fault.text, strlen(st.fault.text));
    }
    buf_char(&r->body, '}');
}

static void model_object(const server *s, buf *out) {
    const served_model *m = &s->model;
    buf_str(out, "{\"id\":");
    buf_json_str(out, m->name, strlen(m->name));
    buf_fmt(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"moonlet\",\"root\":", (long long)m->created);
    buf_json_str(out, m->name, strlen(m->name));
    buf_fmt(out, ",\"parent\":null,\"max_model_len\":%lld}", (long long)m->context);
}

void route_models(server *s, http_request *q, http_reply *r) {
    const char *id = q->path + strlen("/v1/models");
    r->status = 200;
    if (*id == '/' && id[1]) {
        if (served_model_is(&s->model, id + 1)) {
            model_object(s, &r->body);
            return;
        }
        api_error e;
        api_fail(&e, 404, "model_not_found", "model", "the model \"%.200s\" does not exist", id + 1);
        reply_error(s, r, &e);
        return;
    }
    buf_str(&r->body, "{\"object\":\"list\",\"data\":[");
    model_object(s, &r->body);
    buf_str(&r->body, "]}");
}

void route_version(server *s, http_request *q, http_reply *r) {
    (void)s;
    (void)q;
    r->status = 200;
    buf_str(&r->body, "{\"version\":\"" MOON_VERSION "\"}");
}

void route_model_info(server *s, http_request *q, http_reply *r) {
    (void)q;
    r->status = 200;
    buf_str(&r->body, "{\"model_path\":");
    buf_json_str(&r->body, s->model.dir, strlen(s->model.dir));
    buf_str(&r->body, ",\"tokenizer_path\":");
    buf_json_str(&r->body, s->model.dir, strlen(s->model.dir));
    buf_str(&r->body, ",\"is_generation\":true,\"preferred_sampling_params\":null,\"weight_version\":\"default\",");
    buf_fmt(&r->body, "\"has_image_understanding\":%s,\"has_audio_understanding\":false}",
            s->model.pictures ? "true" : "false");
}

static void key_str(buf *b, const char *key, const char *value) {
    buf_fmt(b, "\"%s\":", key);
    if (value)
        buf_json_str(b, value, strlen(value));
    else
        buf_str(b, "null");
    buf_char(b, ',');
}

/* [0,0,1,1], or null. */
static void numa_nodes(buf *b, const engine *g) {
    buf_str(b, "\"numa_node\":");
    for (i64 r = 0; r < engine_ranks(g) && engine_numa_node(g, r) >= 0; r++)
        buf_fmt(b, "%c%lld", r ? ',' : '[', (long long)engine_numa_node(g, r));
    buf_str(b, engine_numa_node(g, 0) >= 0 ? "]," : "null,");
}

static void info_key_i64(buf *b, const char *key, i64 v) { buf_fmt(b, "\"%s\":%lld,", key, (long long)v); }

static const char *const role_names[] = {[ROLE_BOTH] = NULL, [ROLE_PREFILL] = "prefill", [ROLE_DECODE] = "decode"};

void route_server_info(server *s, http_request *q, http_reply *r) {
    (void)q;
    sched_stats st;
    buf *b = &r->body;
    const server_options *o = &s->o;
    static const char *const space_names[] = {
        [JSON_SPACE_ANY] = "any", [JSON_SPACE_LINE] = "line", [JSON_SPACE_NONE] = "none"};
    char length[32] = "null";
    scheduler_stats(s->sched, &st);
    if (st.draft_rounds) snprintf(length, sizeof length, "%.3f", sched_accept_length(&st));
    r->status = 200;
    buf_char(b, '{');
    key_str(b, "version", "moonlet " MOON_VERSION);
    key_str(b, "model_path", s->model.dir);
    key_str(b, "served_model_name", s->model.name);
    key_str(b, "device", engine_ops(s->engine)->name);
    buf_fmt(
        b,
        "\"simulated\":%s,\"deterministic\":%s,\"tp_size\":%lld,\"pp_size\":%lld,\"dcp_size\":%lld,\"ep_size\":%lld,"
        "\"enable_dp_attention\":%s,",
        engine_simulated(s->engine) ? "true" : "false", engine_deterministic(s->engine) ? "true" : "false",
        (long long)(engine_ranks(s->engine) / engine_stages(s->engine)), (long long)engine_stages(s->engine),
        (long long)engine_kv_ranks(s->engine), (long long)engine_expert_groups(s->engine),
        engine_sequence_ranks(s->engine) > 1 ? "true" : "false");
    buf_fmt(b, "\"has_image_understanding\":%s,", s->model.pictures ? "true" : "false");
    numa_nodes(b, s->engine);
    info_key_i64(b, "nnodes", engine_processes(s->engine));
    key_str(b, "role", role_names[o->role]);
    key_str(b, "host", o->host);
    info_key_i64(b, "port", http_port(s->http));
    key_str(b, "chat_template", chat_template_name(s->model.template));
    key_str(b, "tool_call_parser", o->parse_calls ? "kimi_k2" : NULL);
    key_str(b, "reasoning_parser", o->parse_reasoning ? "kimi_k2" : NULL);
    key_str(b, "memory_plan", engine_plan(s->engine));
    info_key_i64(b, "context_length", st.context);
    info_key_i64(b, "max_running_requests", st.max_running);
    info_key_i64(b, "max_queued_requests", st.max_queued);
    info_key_i64(b, "chunked_prefill_size", st.chunk);
    info_key_i64(b, "page_size", st.page_tokens);
    info_key_i64(b, "max_total_num_tokens", st.pages * st.page_tokens);
    key_str(b, "constrained_json_whitespace", space_names[o->json_form.space]);
    key_str(b, "constrained_json_property_order", o->json_form.in_order ? "schema" : "any");
    buf_fmt(b, "\"disable_jump_forward\":%s,", o->disable_jump_forward ? "true" : "false");
    key_str(b, "speculative_draft_model_path", o->engine.draft_dir);
    info_key_i64(b, "speculative_num_steps", o->engine.draft_dir ? o->engine.draft_steps : o->sched.draft_tokens);
    info_key_i64(b, "speculative_eagle_topk", o->engine.draft_topk);
    info_key_i64(b, "speculative_num_draft_tokens", o->sched.draft_tokens ? o->sched.draft_tokens + 1 : 0);
    if (o->sched.draft_pinned > 0) buf_fmt(b, "\"speculative_pinned_accept\":%g,", o->sched.draft_pinned);
    buf_fmt(b, "\"disable_radix_cache\":%s,", o->sched.disable_radix_cache ? "true" : "false");
    info_key_i64(b, "host_cache_tokens", st.host.places * st.page_tokens);
    buf_fmt(b,
            "\"internal_states\":[{\"avg_spec_accept_length\":%s,\"last_gen_throughput\":%.3f,"
            "\"num_running_reqs\":%lld,\"num_queue_reqs\":%lld,\"pages_used\":%lld,\"pages_cached\":%lld,"
            "\"pages_free\":%lld,\"preemptions\":%lld,\"steps\":%lld}]}",
            length, st.generated_per_s, (long long)st.running, (long long)st.queued, (long long)st.pages_used,
            (long long)st.pages_cached, (long long)st.pages_free, (long long)st.preemptions, (long long)st.steps);
}

void route_metrics(server *s, http_request *q, http_reply *r) {
    (void)q;
    sched_stats st;
    constraint_stats c;
    scheduler_stats(s->sched, &st);
    constraint_cache_stats(s->constraints, &c);
    r->status = 200;
    r->type = "text/plain; version=0.0.4; charset=utf-8";
    metrics_write(s->metrics, &st, &c, s->model.name, http_connections(s->http), &r->body);
    if (st.host.places) metrics_write_host_cache(&st.host, st.page_tokens, s->model.name, &r->body);
    if (s->o.role != ROLE_BOTH) metrics_write_kv(&st, s->fetcher, s->model.name, &r->body);
}

/* ?since=N: only the samples after number N, for who asks once a second. */
void route_live(server *s, http_request *q, http_reply *r) {
    sched_stats st;
    buf *b = &r->body;
    const char *since = http_query(q, "since");
    scheduler_stats(s->sched, &st);
    r->status = 200;
    http_field(r, "Cache-Control", "no-store");
    buf_char(b, '{');
    key_str(b, "model", s->model.name);
    key_str(b, "version", MOON_VERSION);
    key_str(b, "device", engine_ops(s->engine)->name);
    key_str(b, "status", health_word(s, &st));
    buf_fmt(b, "\"simulated\":%s,", engine_simulated(s->engine) ? "true" : "false");
    buf_fmt(b, "\"pictures\":%s,", s->model.pictures ? "true" : "false");
    buf_fmt(b, "\"draft_pinned\":%g,", s->o.sched.draft_pinned);
    buf_fmt(b, "\"uptime_s\":%.1f,\"connections\":%lld,\"body_memory\":%llu,", now_s() - s->started_s,
            (long long)http_connections(s->http), (unsigned long long)http_memory(s->http));
    info_key_i64(b, "context", st.context);
    info_key_i64(b, "max_running", st.max_running);
    info_key_i64(b, "max_queued", st.max_queued);
    info_key_i64(b, "pages", st.pages);
    info_key_i64(b, "page_tokens", st.page_tokens);
    buf_fmt(b, "\"prefix_cache\":%s,", s->o.sched.disable_radix_cache ? "false" : "true");
    dashboard_write(s->dashboard, since ? strtoll(since, NULL, 10) : 0, b);
    buf_char(b, '}');
}

/* The proof of scheduler_check(), between two steps. */
void route_kv_check(server *s, http_request *q, http_reply *r) {
    err e = {0};
    sched_stats st;
    (void)q;
    status ok = scheduler_check(s->sched, &e);
    scheduler_stats(s->sched, &st);
    r->status = ok == ST_OK ? 200 : 500;
    buf_fmt(&r->body, "{\"ok\":%s,\"fault\":", ok == ST_OK ? "true" : "false");
    buf_json_str(&r->body, e.text, strlen(e.text));
    buf_fmt(&r->body, ",\"pages\":%lld,\"pages_used\":%lld,\"pages_cached\":%lld,\"pages_free\":%lld}",
            (long long)st.pages, (long long)st.pages_used, (long long)st.pages_cached, (long long)st.pages_free);
}

/* With ?timeout=SECONDS it waits for the server to be idle, as long as the client does. */
void route_flush_cache(server *s, http_request *q, http_reply *r) {
    f64 wait = q->timeout ? strtod(q->timeout, NULL) : 0;
    if (!(wait >= 0)) wait = 0;
    f64 until = now_s() + (wait > 600 ? 600 : wait);
    for (;;) {
        err e = {0};
        status st = scheduler_flush(s->sched, &e);
        if (st == ST_OK) {
            text_reply(r, 200, "Cache flushed.\n");
            return;
        }
        if (st != ST_LIMIT || now_s() >= until || http_peer_gone(q->fd)) {
            buf text = {0};
            buf_fmt(&text, "Cache not flushed: %s.\n", e.text);
            text_reply(r, 400, text.data ? text.data : "");
            buf_free(&text);
            return;
        }
        usleep(20000);
    }
}

void route_abort_request(server *s, http_request *q, http_reply *r) {
    api_error e = {0};
    const char *rid = NULL;
    bool all = false;
    json_t *body = body_object(q, &e);
    bool ok = body && field_str(body, "rid", &rid, &e) && field_bool(body, "abort_all", &all, &e);
    if (ok && !rid && !all) ok = api_fail(&e, 400, NULL, "rid", "give a rid or abort_all: true");
    if (ok) {
        buf_fmt(&r->body, "{\"aborted\":%lld}", (long long)job_table_abort(s->jobs, all ? NULL : rid));
        r->status = 200;
    } else {
        reply_error(s, r, &e);
    }
    json_decref(body);
}
