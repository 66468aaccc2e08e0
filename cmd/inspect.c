/* cmd/inspect.c: `moonlet inspect`: what a checkpoint holds and what it will need, from its headers alone. */
#include "cmd/cmd.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "format/detect.h"
#include "format/requant.h"
#include "model/config.h"
#include "cmd/inspect_formats.h"
#include "cmd/lib/model_opts.h"
#include "runtime/engine.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const char *model;
    i64 context, seqs, tp;
    f64 gpu_gib;
    bool json, formats;
    opt_list overrides;
} options;

/* ---- tensors by kind ---- */

#define KIND_MAP(X)                                                                                                    \
    X(K_EMBED, "embedding")                                                                                            \
    X(K_ATTN, "attention")                                                                                             \
    X(K_DENSE, "dense MLP")                                                                                            \
    X(K_ROUTED, "routed experts")                                                                                      \
    X(K_SHARED, "shared experts")                                                                                      \
    X(K_ROUTER, "router")                                                                                              \
    X(K_NORM, "norms")                                                                                                 \
    X(K_HEAD, "head")                                                                                                  \
    X(K_VISION, "vision tower")                                                                                        \
    X(K_PROJ, "projector")                                                                                             \
    X(K_LATER, "later layers")                                                                                         \
    X(K_OTHER, "other")

typedef enum {
#define KIND_ENUM(id, name) id,
    KIND_MAP(KIND_ENUM)
#undef KIND_ENUM
        K_COUNT
} kind;

static const char *const kind_names[K_COUNT] = {
#define KIND_NAME(id, name) name,
    KIND_MAP(KIND_NAME)
#undef KIND_NAME
};

/* How a tensor's bytes count: one bucket a dtype, and one each for the formats made of several tensors. */
enum { F_COUNT = DT_COUNT + WEIGHT_FORMATS_MOST };

static const char *bucket_name(int f) {
    return f < DT_COUNT ? dtype_name((dtype)f) : weight_format_name((weight_format)(f - DT_COUNT));
}

static int bucket_of_format(weight_format f) {
    const weight_layout *l = weight_layout_of(f);
    return l->scale ? DT_COUNT + (int)(l->kept_as ? l->kept_as : f) : (int)l->data_type;
}

typedef struct {
    u64 tensors, bytes;
    u64 by_format[F_COUNT]; /* bytes */
} kind_sum;

typedef struct {
    kind_sum kinds[K_COUNT];
    u64 tensors, bytes;
} inventory;

static bool has(const char *s, const char *part) { return strstr(s, part) != NULL; }
static bool starts(const char *s, const char *part) { return strncmp(s, part, strlen(part)) == 0; }

/* K_LATER and K_OTHER are not loaded: layers past the configuration's last one (a multi-token prediction
 * layer, or those that --override num_hidden_layers drops) and names that the model does not have. */
static kind inspect_kind_of(const char *name, const model_config *c) {
    if (starts(name, "vision_tower.")) return K_VISION;
    if (starts(name, "mm_projector.")) return K_PROJ;
    if (!starts(name, c->prefix)) return K_OTHER;
    name += strlen(c->prefix);
    long long layer;
    if (sscanf(name, "model.layers.%lld.", &layer) == 1 && layer >= c->n_layers) return K_LATER;
    if (starts(name, "model.embed_tokens.")) return K_EMBED;
    if (starts(name, "lm_head.")) return K_HEAD;
    if (starts(name, "model.norm.") || has(name, "layernorm.")) return K_NORM;
    if (has(name, ".rotary_emb.")) return K_OTHER; /* leftovers in K2-Instruct, not used */
    if (has(name, ".self_attn.")) return K_ATTN;
    if (has(name, ".mlp.experts.")) return K_ROUTED;
    if (has(name, ".mlp.shared_experts.")) return K_SHARED;
    if (has(name, ".mlp.gate.")) return K_ROUTER;
    return has(name, ".mlp.") ? K_DENSE : K_OTHER;
}

static int inspect_bucket_of(const checkpoint *ck, const tensor_info *t) {
    weight_format f;
    return weight_detect_part(ck, t, &f) ? bucket_of_format(f) : (int)t->type;
}

static void inspect_add(inventory *v, kind k, int bucket, u64 tensors, u64 bytes) {
    v->kinds[k].tensors += tensors;
    v->kinds[k].bytes += bytes;
    v->kinds[k].by_format[bucket] += bytes;
    v->tensors += tensors;
    v->bytes += bytes;
}

static void count_checkpoint(inventory *v, const checkpoint *ck, const model_config *c) {
    for (u64 i = 0; i < checkpoint_n_tensors(ck); i++) {
        const tensor_info *t = checkpoint_tensor(ck, i);
        inspect_add(v, inspect_kind_of(t->name, c), inspect_bucket_of(ck, t), 1, t->bytes);
    }
}

/* ---- the same from the configuration alone ---- */

/* n matrices [rows, cols] of a kind that the checkpoint's quantization covers, or bf16. */
static void add_linear(inventory *v, kind k, weight_format f, u64 n, i64 rows, i64 cols) {
    weight_view w = {.format = f, .rows = rows, .cols = cols};
    const weight_layout *l = weight_layout_of(f);
    u64 tensors = 1 + (l->scale != NULL) + (l->factor != NULL) + (l->shape != NULL),
        bytes = weight_bytes(&w) + (l->factor ? sizeof(f32) : 0) + (l->shape ? 2 * sizeof(i32) : 0);
    inspect_add(v, k, bucket_of_format(f), n * tensors, n * bytes);
}

static void add_mlp(inventory *v, kind k, weight_format f, u64 n, i64 inter, i64 hidden) {
    add_linear(v, k, f, 2 * n, inter, hidden);
    add_linear(v, k, f, n, hidden, inter);
}

/* on_gpu: as a GPU keeps them. */
static void count_config(inventory *v, const model_config *c, bool on_gpu) {
    u64 layers = (u64)c->n_layers, dense = (u64)c->n_dense, moe = layers - dense;
    weight_format most = model_config_dense_format(c);
    if (on_gpu) most = linear_on_gpu(most);
    i64 d_qk = c->nope + c->rope;
    add_linear(v, K_EMBED, WF_BF16, 1, c->vocab_held, c->hidden);
    if (!c->tie_embeddings) add_linear(v, K_HEAD, WF_BF16, 1, c->vocab_held, c->hidden);
    if (c->q_lora) {
        add_linear(v, K_ATTN, most, layers, c->q_lora, c->hidden);
        add_linear(v, K_ATTN, most, layers, c->n_heads * d_qk, c->q_lora);
        add_linear(v, K_NORM, WF_BF16, layers, 1, c->q_lora);
    } else {
        add_linear(v, K_ATTN, most, layers, c->n_heads * d_qk, c->hidden);
    }
    add_linear(v, K_ATTN, most, layers, c->kv_lora + c->rope, c->hidden);
    add_linear(v, K_ATTN, most, layers, c->n_heads * (c->nope + c->v_dim), c->kv_lora);
    add_linear(v, K_ATTN, most, layers, c->hidden, c->n_heads * c->v_dim);
    add_linear(v, K_NORM, WF_BF16, layers, 1, c->kv_lora);
    add_linear(v, K_NORM, WF_BF16, 2 * layers + 1, 1, c->hidden);
    add_mlp(v, K_DENSE, most, dense, c->inter_dense, c->hidden);
    add_mlp(v, K_ROUTED, c->quant, moe * (u64)c->n_experts, c->inter_expert, c->hidden);
    if (c->n_shared) add_mlp(v, K_SHARED, most, moe, c->inter_shared, c->hidden);
    add_linear(v, K_ROUTER, WF_BF16, moe, c->n_experts, c->hidden);
    inspect_add(v, K_ROUTER, DT_F32, moe, moe * (u64)c->n_experts * 4);
}

/* ---- the memory plan ---- */

enum { N_KV = 3 };
static const struct {
    const char *name;
    u64 bytes; /* a value */
} kv_types[N_KV] = {{"bf16", 2}, {"fp8_e4m3", 1}, {"fp32", 4}};

typedef struct {
    u64 values;         /* of KV, a token */
    u64 tokens;         /* in whole pages, all sequences */
    u64 weights;        /* bytes */
    u64 kv[N_KV];       /* bytes for tokens */
    u64 kv_token[N_KV]; /* bytes a token */
} memory_plan;

static status make_plan(memory_plan *p, const model_config *c, const options *o, u64 weights, err *e) {
    p->values = (u64)(c->kv_lora + c->rope) * (u64)c->n_layers;
    p->weights = weights;
    p->tokens = (u64)ceil_div(o->context, KV_PAGE) * KV_PAGE;
    bool fits = mul_size(p->tokens, (u64)o->seqs, &p->tokens);
    for (int i = 0; i < N_KV; i++) {
        p->kv_token[i] = p->values * kv_types[i].bytes;
        fits = fits && mul_size(p->tokens, p->kv_token[i], &p->kv[i]);
    }
    return fits ? ST_OK : err_set(e, ST_INPUT, "--context times --seqs is too large to count");
}

/* ---- the same for GPUs that divide the model ---- */

typedef struct {
    u64 weights;       /* bytes, of the first rank */
    u64 room;          /* bytes of a GPU for weights and KV pool */
    u64 whole[N_KV];   /* tokens where every GPU has all of the KV cache; 0: none fit */
    u64 divided[N_KV]; /* where they divide it */
} ranks_plan;

/* By the engine's own rule (runtime/engine.c), but for what a GPU's driver holds and a KV pool's last page. */
static status make_ranks_plan(ranks_plan *p, const model_config *whole, const options *o, err *e) {
    model_config c = *whole;
    inventory v = {0};
    status st = model_config_split(&c, o->tp, 0, "--tp", e);
    if (st != ST_OK) return st;
    count_config(&v, &c, true);
    p->weights = v.bytes;
    p->room = (u64)(o->gpu_gib * 1073741824.0 * ENGINE_GPU_FRACTION);
    for (int i = 0; i < N_KV; i++) {
        const u64 page = (u64)(c.kv_lora + c.rope) * (u64)c.n_layers * kv_types[i].bytes * KV_PAGE;
        p->whole[i] = p->room > p->weights ? (p->room - p->weights) / page * KV_PAGE : 0;
        p->divided[i] = p->whole[i] * (u64)o->tp;
    }
    return ST_OK;
}

/* ---- printing ---- */

typedef struct {
    const char *dir;
    const options *o;
    const model_config *c;
    const checkpoint *ck; /* NULL: no weights */
    const inventory *v;
    const memory_plan *p;
    const ranks_plan *ranks; /* NULL: not asked for */
} report;

static const char *human(char out[32], u64 bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    f64 x = (f64)bytes;
    int u = 0;
    for (; x >= 1024 && u < 6; u++) x /= 1024;
    snprintf(out, 32, u ? "%.2f %s" : "%.0f %s", x, units[u]);
    return out;
}

static void print_dims(const model_config *c) {
    const struct {
        const char *name;
        i64 value;
    } rows[] = {
        {"vocabulary", c->vocab},
        {"hidden", c->hidden},
        {"layers", c->n_layers},
        {"of these dense", c->n_dense},
        {"heads", c->n_heads},
        {"query rank", c->q_lora},
        {"KV rank", c->kv_lora},
        {"head: without rope", c->nope},
        {"head: rope", c->rope},
        {"head: value", c->v_dim},
        {"dense MLP width", c->inter_dense},
        {"expert width", c->inter_expert},
        {"routed experts", c->n_experts},
        {"experts a token", c->top_k},
        {"shared experts", c->n_shared},
        {"positions", c->max_positions},
    };
    size_t half = COUNT_OF(rows) / 2;
    for (size_t i = 0; i < half; i++)
        printf("  %-20s %9lld    %-20s %9lld\n", rows[i].name, (long long)rows[i].value, rows[i + half].name,
               (long long)rows[i + half].value);
    if (c->rope_cfg.factor > 1)
        printf("  YaRN factor %g from %lld positions, beta %g/%g, theta %g; softmax scale %.10f\n", c->rope_cfg.factor,
               (long long)c->rope_cfg.original, c->rope_cfg.beta_fast, c->rope_cfg.beta_slow, c->rope_cfg.theta,
               model_softmax_scale(c));
    else
        printf("  plain RoPE, theta %g; softmax scale %.10f\n", c->rope_cfg.theta, model_softmax_scale(c));
}

static void print_kind(const char *name, const kind_sum *k) {
    char size[32];
    printf("  %-16s %9llu %14s  ", name, (unsigned long long)k->tensors, human(size, k->bytes));
    const char *sep = "";
    for (int f = 0; f < F_COUNT; f++) {
        if (!k->by_format[f]) continue;
        printf("%s%s", sep, bucket_name(f));
        sep = " + ";
    }
    printf("\n");
}

static void print_inventory(const report *r) {
    printf("\n  %-16s %9s %14s  %s\n", "kind", "tensors", "size", "format");
    for (int k = 0; k < K_COUNT; k++)
        if (r->v->kinds[k].tensors) print_kind(kind_names[k], &r->v->kinds[k]);
    char size[32];
    printf("  %-16s %9llu %14s\n", "all", (unsigned long long)r->v->tensors, human(size, r->v->bytes));
    const kind_sum *tower = &r->v->kinds[K_VISION], *projector = &r->v->kinds[K_PROJ];
    if (tower->tensors + projector->tensors)
        printf("  vision tower and projector: %llu tensors, %s\n",
               (unsigned long long)(tower->tensors + projector->tensors), human(size, tower->bytes + projector->bytes));
    if (r->ck && checkpoint_n_unlisted(r->ck))
        printf("  %llu tensors lie in the shards without the index listing them: not used\n",
               (unsigned long long)checkpoint_n_unlisted(r->ck));
}

static void print_plan(const report *r) {
    char a[32], b[32], c[32];
    printf("\nKV cache: %llu values a token (%lld a layer), in pages of %d tokens\n", (unsigned long long)r->p->values,
           (long long)(r->c->kv_lora + r->c->rope), KV_PAGE);
    printf("Memory for %lld x %lld tokens, without workspace:\n", (long long)r->o->seqs, (long long)r->o->context);
    for (int i = 0; i < N_KV; i++)
        printf("  KV %-9s %8llu B a token: weights %s + KV %s = %s\n", kv_types[i].name,
               (unsigned long long)r->p->kv_token[i], human(a, r->p->weights), human(b, r->p->kv[i]),
               human(c, r->p->weights + r->p->kv[i]));
}

static void print_ranks(const report *r) {
    const ranks_plan *p = r->ranks;
    const f64 each = (f64)(ceil_div(r->o->context, KV_PAGE) * KV_PAGE);
    char a[32], b[32];
    printf("\nOver %lld GPUs with %.4g GiB free each (--tp %lld), %.0f %% of it for weights and KV cache:\n",
           (long long)r->o->tp, r->o->gpu_gib, (long long)r->o->tp, 100 * ENGINE_GPU_FRACTION);
    printf("  weights of a GPU by config.json: %s of %s%s\n", human(a, p->weights), human(b, p->room),
           p->weights < p->room ? "" : ": THEY DO NOT FIT");
    for (int i = 0; i < N_KV && p->weights < p->room; i++)
        printf("  KV %-9s whole on each (--dcp 1): %llu tokens, %.1f x %lld; divided (--dcp %lld): %llu, %.1f x %lld\n",
               kv_types[i].name, (unsigned long long)p->whole[i], (f64)p->whole[i] / each, (long long)r->o->context,
               (long long)r->o->tp, (unsigned long long)p->divided[i], (f64)p->divided[i] / each,
               (long long)r->o->context);
}

static void print_text(const report *r) {
    printf("%s: %s%s%s\n", r->dir, r->c->model_type, r->c->prefix[0] ? ", text model under " : "", r->c->prefix);
    print_dims(r->c);
    if (r->ck)
        printf("\n%d shard%s, %llu tensors\n", checkpoint_n_shards(r->ck), checkpoint_n_shards(r->ck) == 1 ? "" : "s",
               (unsigned long long)checkpoint_n_tensors(r->ck));
    else
        printf("\nNo weights in this folder: the sizes below follow from config.json%s.\n",
               r->c->prefix[0] ? ", without vision tower and projector" : "");
    print_inventory(r);
    print_plan(r);
    if (r->ranks) print_ranks(r);
}

static json_t *json_dims(const model_config *c) {
    return json_pack("{s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I}", "vocab", c->vocab, "hidden",
                     c->hidden, "layers", c->n_layers, "dense_layers", c->n_dense, "heads", c->n_heads, "q_lora",
                     c->q_lora, "kv_lora", c->kv_lora, "nope", c->nope, "rope", c->rope, "v_dim", c->v_dim,
                     "inter_dense", c->inter_dense, "inter_expert", c->inter_expert, "experts", c->n_experts, "top_k",
                     c->top_k, "shared_experts", c->n_shared, "max_positions", c->max_positions);
}

static json_t *json_kinds(const inventory *v) {
    json_t *kinds = json_object();
    for (int k = 0; k < K_COUNT; k++) {
        if (!v->kinds[k].tensors) continue;
        json_t *formats = json_object();
        for (int f = 0; f < F_COUNT; f++)
            if (v->kinds[k].by_format[f])
                json_object_set_new(formats, bucket_name(f), json_integer((json_int_t)v->kinds[k].by_format[f]));
        json_object_set_new(kinds, kind_names[k],
                            json_pack("{s:I s:I s:o}", "tensors", (json_int_t)v->kinds[k].tensors, "bytes",
                                      (json_int_t)v->kinds[k].bytes, "formats", formats));
    }
    return kinds;
}

static json_t *json_kv(const u64 bytes[N_KV]) {
    json_t *o = json_object();
    for (int i = 0; i < N_KV; i++) json_object_set_new(o, kv_types[i].name, json_integer((json_int_t)bytes[i]));
    return o;
}

static void print_json(const report *r) {
    const memory_plan *p = r->p;
    json_t *j = json_pack("{s:s s:s s:s s:o s:f s:b s:i s:I s:I s:I s:o}", "model_type", r->c->model_type, "prefix",
                          r->c->prefix, "quantization", weight_format_name(r->c->quant), "dims", json_dims(r->c),
                          "softmax_scale", model_softmax_scale(r->c), "has_weights", r->ck != NULL, "shards",
                          r->ck ? checkpoint_n_shards(r->ck) : 0, "tensors", (json_int_t)r->v->tensors, "bytes",
                          (json_int_t)r->v->bytes, "unlisted", (json_int_t)(r->ck ? checkpoint_n_unlisted(r->ck) : 0),
                          "kinds", json_kinds(r->v));
    json_object_set_new(
        j, "kv",
        json_pack("{s:I s:o}", "values_per_token", (json_int_t)p->values, "bytes_per_token", json_kv(p->kv_token)));
    json_object_set_new(j, "plan",
                        json_pack("{s:I s:I s:I s:o}", "context", (json_int_t)r->o->context, "seqs",
                                  (json_int_t)r->o->seqs, "weights", (json_int_t)p->weights, "kv", json_kv(p->kv)));
    if (r->ranks)
        json_object_set_new(j, "ranks",
                            json_pack("{s:I s:f s:I s:I s:o s:o}", "tp", (json_int_t)r->o->tp, "gpu_gib", r->o->gpu_gib,
                                      "room", (json_int_t)r->ranks->room, "weights", (json_int_t)r->ranks->weights,
                                      "tokens_whole", json_kv(r->ranks->whole), "tokens_divided",
                                      json_kv(r->ranks->divided)));
    char *text = json_to_text(j, &(json_style){",", ": ", NULL, 2});
    printf("%s\n", text ? text : "out of memory");
    free(text);
    json_decref(j);
}

/* ---- the command ---- */

/* *out stays NULL when the folder holds no weights at all. */
static status inspect_open_weights(checkpoint **out, const char *dir, err *e) {
    static const char *const names[] = {"model.safetensors.index.json", "model.safetensors"};
    *out = NULL;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char path[PATH_MAX];
        status st = path_join(path, sizeof path, dir, names[i], e);
        if (st != ST_OK) return st;
        if (file_exists(path)) return checkpoint_open(out, dir, e);
    }
    return ST_OK;
}

static status inspect(options *o, err *e) {
    model_config c;
    checkpoint *ck = NULL;
    inventory v = {0};
    memory_plan p;
    status st = model_config_load(&c, o->model, e);
    for (int i = 0; i < o->overrides.n && st == ST_OK; i++) st = model_config_override(&c, o->overrides.items[i], e);
    if (st == ST_OK) st = inspect_open_weights(&ck, o->model, e);
    if (st != ST_OK) return st;
    if (!o->context) o->context = c.max_positions;
    if (ck)
        count_checkpoint(&v, ck, &c);
    else
        count_config(&v, &c, false);
    st = make_plan(&p, &c, o, v.bytes - v.kinds[K_LATER].bytes - v.kinds[K_OTHER].bytes, e);
    ranks_plan ranks;
    if (st == ST_OK && o->tp) st = make_ranks_plan(&ranks, &c, o, e);
    if (st == ST_OK) {
        report r = {o->model, o, &c, ck, &v, &p, o->tp ? &ranks : NULL};
        if (o->json)
            print_json(&r);
        else
            print_text(&r);
    }
    checkpoint_close(ck);
    return st;
}

int cmd_inspect(int argc, char **argv) {
    options o = {.seqs = 1, .gpu_gib = 139};
    const opt_spec specs[] = {
        {"model", 'm', OPT_STR, &o.model, "DIR",
         "checkpoint folder, config.json alone will do (default: the nano model that comes along)", 0, 0},
        {"context", 0, OPT_INT, &o.context, "N",
         "tokens a sequence in the memory plan (default: the model's positions)", 1, 1e12},
        {"seqs", 0, OPT_INT, &o.seqs, "N", "sequences in the memory plan (default: 1)", 1, 1e9},
        {"tp", 0, OPT_INT, &o.tp, "N", "the memory plan of N GPUs, too: how many tokens of KV cache they have room for",
         1, 64},
        {"gpu-memory", 0, OPT_REAL, &o.gpu_gib, "GIB", "with --tp: free memory of a GPU (default: 139, an H200's)", 0.1,
         1e6},
        {"override", 0, OPT_LIST, &o.overrides, "KEY=VALUE",
         "changes a key of config.json, for example num_hidden_layers=10", 0, 0},
        {"formats", 0, OPT_FLAG, &o.formats, NULL, "weight formats: who writes them, where they run, how fast", 0, 0},
        {"json", 0, OPT_FLAG, &o.json, NULL, "one JSON object instead of tables", 0, 0},
    };
    int rc = cmd_options("inspect", "[-m DIR] [options]", specs, COUNT_OF(specs), argc, argv, NULL);
    if (rc >= 0) return rc;
    if (o.formats) return inspect_formats(o.json), EXIT_DONE;
    err e = {0};
    char nano[PATH_MAX];
    if (!o.model && nano_dir(nano, sizeof nano, &e) == ST_OK) o.model = nano;
    return o.model && inspect(&o, &e) == ST_OK ? EXIT_DONE : cmd_fail("inspect", &e);
}
