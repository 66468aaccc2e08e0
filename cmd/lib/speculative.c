#include "cmd/lib/speculative.h"
#include "base/file.h"
#include "runtime/draft_tree.h"
#include <stdio.h>
#include <string.h>

enum { NGRAM_ROWS = 9, EAGLE_STEPS = 3, TREE_ROWS = 8 };

/* The draft's folder beside the model's, if there is one. */
static bool find_draft(const char *model_dir, char *out, size_t cap) {
    static const char *const behind[] = {"-eagle3", "-eagle3-mla"}; /* the former guesses faster */
    int n = (int)strlen(model_dir);
    while (n > 1 && model_dir[n - 1] == '/') n--;
    for (size_t i = 0; i < COUNT_OF(behind); i++) {
        char config[4096];
        snprintf(config, sizeof config, "%.*s%s/config.json", n, model_dir, behind[i]);
        if (file_exists(config) && (size_t)snprintf(out, cap, "%.*s%s", n, model_dir, behind[i]) < cap) return true;
    }
    return false;
}

/* What a draft cannot be with, so that one that nobody asked for is left out. */
static bool rules_out(const engine_options *g) {
    return g->step || g->n_overrides || (g->load_format && !strcmp(g->load_format, "dummy"));
}

static status check_chain(const speculative_opts *o, i64 steps, err *e) {
    if (o->draft_tokens && o->draft_tokens != steps + 1)
        return err_set(
            e, ST_INPUT,
            "--speculative-num-draft-tokens %lld with --speculative-num-steps %lld: a chain has %lld rows, its "
            "steps and the last token's own",
            (long long)o->draft_tokens, (long long)steps, (long long)steps + 1);
    return ST_OK;
}

/* Of a tree: how many guesses are checked. */
static status tree_nodes(const speculative_opts *o, i64 steps, i64 *nodes, err *e) {
    const i64 all = draft_candidates(steps, o->topk), most = min_i64(all, DRAFT_NODES_MOST);
    if (o->topk > BEAMS_MOST)
        return err_set(e, ST_INPUT, "--speculative-eagle-topk %lld: at most %d", (long long)o->topk, BEAMS_MOST);
    *nodes = o->draft_tokens ? o->draft_tokens - 1 : min_i64(most, TREE_ROWS - 1);
    if (*nodes > most)
        return err_set(e, ST_INPUT,
                       "--speculative-num-draft-tokens %lld: %lld steps with %lld guesses each make trees of %lld rows "
                       "at most, and %d is the limit",
                       (long long)o->draft_tokens, (long long)steps, (long long)o->topk, (long long)all + 1,
                       DRAFT_NODES_MOST + 1);
    return ST_OK;
}

/* Of the options that say what becomes of proposals one that was given; NULL: none. */
static const char *given_beside(const speculative_opts *o) {
    return o->pinned > 0 ? "pinned-accept" : o->always ? "disable-adaptive" : o->verify_rate > 0 ? "verify-rate" : NULL;
}

static status finish_eagle(const speculative_opts *o, const char *dir, engine_options *g, i64 *draft_tokens, err *e) {
    const bool tree = o->topk > 1;
    const i64 steps = o->steps                   ? o->steps
                      : o->draft_tokens && !tree ? min_i64(o->draft_tokens - 1, DRAFT_STEPS_MOST)
                                                 : EAGLE_STEPS;
    i64 nodes = steps;
    status st = tree ? tree_nodes(o, steps, &nodes, e) : check_chain(o, steps, e);
    if (st != ST_OK) return st;
    if (!dir)
        return err_set(
            e, ST_INPUT,
            "--speculative-algorithm EAGLE3 needs --speculative-draft-model-path DIR: there is no draft at %s-eagle3",
            g->model_dir);
    g->draft_dir = dir;
    g->draft_found = !o->algorithm && !o->draft_dir && !o->steps && !o->topk && !o->draft_tokens && !given_beside(o);
    g->draft_steps = steps;
    g->draft_topk = tree ? o->topk : 1;
    g->draft_nodes = *draft_tokens = nodes;
    return ST_OK;
}

static status finish_ngram(const speculative_opts *o, i64 *draft_tokens, err *e) {
    const char *given = o->draft_dir ? "draft-model-path" : o->steps ? "num-steps" : o->topk ? "eagle-topk" : NULL;
    if (given) return err_set(e, ST_INPUT, "--speculative-%s is for --speculative-algorithm EAGLE3", given);
    *draft_tokens = (o->draft_tokens ? o->draft_tokens : NGRAM_ROWS) - 1;
    return ST_OK;
}

status speculative_not_served(const speculative_opts *o, err *e) {
    const char *given = given_beside(o);
    return given ? err_set(e, ST_INPUT, "--speculative-%s is for serve and bench serving", given) : ST_OK;
}

static status finish_pinned(const speculative_opts *o, engine_options *g, scheduler_options *s, err *e) {
    const char *given = given_beside(o);
    s->draft_always = o->always;
    s->draft_pinned = o->pinned;
    s->draft_verify_rate = o->verify_rate;
    if (given && !s->draft_tokens)
        return err_set(e, ST_INPUT, "--speculative-%s: nothing proposes tokens (--speculative-algorithm says who does)",
                       given);
    if (o->pinned > 0 && o->verify_rate > 0)
        return err_set(e, ST_INPUT,
                       "--speculative-verify-rate with --speculative-pinned-accept: what is pinned is not what is "
                       "drawn, so there is nothing to compare");
    if (o->pinned <= 0) return ST_OK;
    const i64 deepest = g->draft_dir ? g->draft_steps : s->draft_tokens;
    if (o->pinned > (f64)deepest + 1)
        return err_set(e, ST_INPUT, "--speculative-pinned-accept %g: %lld drafts give no more than %lld tokens a step",
                       o->pinned, (long long)deepest, (long long)deepest + 1);
    g->pinned_accept = o->pinned;
    return ST_OK;
}

static status finish_proposals(const speculative_opts *o, engine_options *g, i64 *draft_tokens, err *e) {
    static char found[4096];
    const bool given = o->draft_dir || o->steps || o->topk || o->draft_tokens;
    const char *dir = o->draft_dir ? o->draft_dir : find_draft(g->model_dir, found, sizeof found) ? found : NULL;
    *draft_tokens = 0;
    if (o->algorithm && !strcmp(o->algorithm, "NGRAM")) return finish_ngram(o, draft_tokens, e);
    if (o->algorithm && !strcmp(o->algorithm, "NONE"))
        return given ? err_set(e, ST_INPUT, "--speculative-algorithm NONE goes without the other --speculative-*")
                     : ST_OK;
    if (!o->algorithm && !given && (!dir || rules_out(g))) return ST_OK;
    return finish_eagle(o, dir, g, draft_tokens, e);
}

status speculative_finish(const speculative_opts *o, engine_options *g, scheduler_options *s, err *e) {
    status st = finish_proposals(o, g, &s->draft_tokens, e);
    return st == ST_OK ? finish_pinned(o, g, s, e) : st;
}
