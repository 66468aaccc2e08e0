/* Ranks that copy their weights, as GPUs do: what each is given is what lies in the mapping, to the bit, while the disk
 * is asked for every byte once, whatever number of ranks; ranks and disks that fail end it for all. */
#include "unit.h"

#include "base/log.h"
#include "counted_reads.h"
#include "random_model.h"
#include "runtime/load.h"
#include <sys/stat.h>

enum { RANKS_MOST = 4 };

/* A rank's table: ref's, but weights are looked at view by view and then forgotten. */
typedef struct {
    u64 hash;
    i64 weights, fails_at; /* prepared; the one that fails, or -1 */
    unsigned us;           /* at each view */
} copier;
static copier copiers[RANKS_MOST];
static status (*ref_prepare)(const ops *o, const weight_desc *d, op_weight **out, err *e);

static void hash_bytes(u64 *h, const void *p, u64 n) {
    for (u64 i = 0; i < n; i++) *h = (*h ^ ((const u8 *)p)[i]) * 1099511628211u;
}

static status copy_prepare(const ops *o, const weight_desc *d, op_weight **out, err *e) {
    copier *c = o->state;
    weight_memory none = {0};
    weight_desc planned = *d;
    if (!d->room) {
        *out = NULL;
        if (c->weights++ == c->fails_at) return err_set(e, ST_NOMEM, "no room for it");
        for (i64 i = 0; i < d->n_views; i++) {
            status st = d->fetch(d->ud, i, e);
            if (st != ST_OK) return st;
            const weight_view *v = &d->views[i];
            hash_bytes(&c->hash, &v->rows, sizeof v->rows);
            hash_bytes(&c->hash, &v->factor, sizeof v->factor);
            hash_bytes(&c->hash, v->data, weight_data_bytes(v));
            hash_bytes(&c->hash, v->scale, weight_scale_bytes(v));
            if (c->us) usleep(c->us);
        }
        planned.room = &none; /* nobody will compute with it */
    }
    return ref_prepare(o, &planned, out, e);
}

static status open_copier(rank *k, void *ud, err *e) {
    status st = backend_open(&k->backend, &(backend_options){.name = "ref"}, e);
    if (st != ST_OK) return st;
    ref_prepare = k->backend.ops.weight_prepare; /* every rank's is the same */
    k->backend.ops.weight_prepare = copy_prepare;
    k->backend.ops.keeps_views = false;
    k->backend.ops.state = &copiers[k->index];
    const model_limits lim = {.rows = 4,
                              .decode_rows = 4,
                              .prefill_spans = 1,
                              .logit_rows = 1,
                              .seq_pages = 1,
                              .pool_pages = 1,
                              .kv_type = DT_F32};
    st = model_open(&k->model, &k->config, ud, &k->backend.ops, k->backend.device, e);
    return st == ST_OK ? model_plan(k->model, &lim, e) : st;
}

static status load_mapped(rank *k, void *ud, err *e) {
    (void)ud;
    return model_load(k->model, NULL, true, e);
}

/* `mapped`: without a reader. layers: of the model, from the first; 0: all. */
static status load(const char *dir, i64 tp, i64 layers, bool mapped, weight_reads *reads, u64 *in_checkpoint, err *e) {
    ranks r = {0};
    model_config c;
    checkpoint *ck = NULL;
    status st = model_config_load(&c, dir, e);
    if (st == ST_OK && layers) c.n_layers = layers;
    if (st == ST_OK) st = checkpoint_open(&ck, dir, e);
    if (st == ST_OK) st = ranks_open(&r, &c, &(rank_layout){.tp = tp, .pp = 1}, NULL, false, 60, e);
    if (st == ST_OK) st = ranks_each(&r, open_copier, ck, e);
    if (st == ST_OK) st = mapped ? ranks_each(&r, load_mapped, NULL, e) : ranks_load(&r, ck, true, reads, e);
    *in_checkpoint = 0;
    for (u64 i = 0; ck && i < checkpoint_n_tensors(ck); i++) {
        const tensor_info *t = checkpoint_tensor(ck, i);
        if (!layers || !strstr(t->name, "layers.1.")) *in_checkpoint += t->bytes;
    }
    ranks_close(&r);
    checkpoint_close(ck);
    return st;
}

static void reset_copiers(void) {
    for (i64 k = 0; k < RANKS_MOST; k++) copiers[k] = (copier){.hash = 1469598103934665603u, .fails_at = -1};
    disk_reset();
}

static random_model model_of(weight_format experts, bool tie) {
    return (random_model){.name = "loaded",
                          .vocab = 157,
                          .hidden = 512,
                          .layers = 2,
                          .dense = 1,
                          .heads = 4,
                          .q_lora = 32,
                          .kv_lora = 64,
                          .nope = 16,
                          .rope = 16,
                          .v = 16,
                          .inter = 512,
                          .expert_inter = 512,
                          .experts = 6,
                          .top_k = 2,
                          .shared = 1,
                          .context = 512,
                          .attn = WF_BF16,
                          .mlp = WF_BF16,
                          .expert = {experts, experts},
                          .embed = WF_BF16,
                          .router = WF_BF16,
                          .tie = tie};
}

static void loaded_once(const char *dir, i64 tp, i64 layers) {
    u64 mapped[RANKS_MOST], needed;
    weight_reads reads;
    err e = {0};
    reset_copiers();
    if (load(dir, tp, layers, true, NULL, &needed, &e) != ST_OK) fail_msg("%s", e.text);
    assert_int_equal(disk.bytes, 0);
    for (i64 k = 0; k < tp; k++) mapped[k] = copiers[k].hash;
    reset_copiers();
    copiers[tp - 1].us = 50; /* one is slower */
    if (load(dir, tp, layers, false, &reads, &needed, &e) != ST_OK) fail_msg("%s", e.text);
    for (i64 k = 0; k < tp; k++) assert_int_equal(copiers[k].hash, mapped[k]);
    for (i64 k = 1; k < tp; k++) assert_int_not_equal(mapped[k], mapped[0]);
    assert_int_equal(reads.needed, needed);
    assert_int_equal(reads.bytes, needed);
    assert_int_equal(disk.bytes, needed);
}

static void every_byte_once(void **state) {
    (void)state;
    static const weight_format formats[] = {WF_INT4_GROUP, WF_BF16, WF_FP8_BLOCK, WF_INT4_ROW};
    char dir[64];
    for (size_t f = 0; f <= COUNT_OF(formats); f++) {
        bool tie = f == COUNT_OF(formats);
        const random_model m = model_of(formats[tie ? 0 : f], tie);
        assert_true(random_model_write(&m, 7, dir, NULL));
        for (i64 tp = 1; tp <= RANKS_MOST; tp *= 2) loaded_once(dir, tp, 0);
        loaded_once(dir, 2, 1);
        random_model_remove(dir);
    }
}

static char cut_path[96];
static void cut_the_file(void) {
    struct stat s;
    if (stat(cut_path, &s) || truncate(cut_path, s.st_size / 8)) abort();
}

/* The file is cut after its tensors were mapped: no signal, whoever is first to see it. */
static void a_file_that_is_cut(void **state) {
    (void)state;
    const random_model m = model_of(WF_INT4_GROUP, false);
    char dir[64];
    for (i64 tp = 1; tp <= RANKS_MOST; tp *= 2) {
        weight_reads reads;
        u64 needed;
        err e = {0};
        assert_true(random_model_write(&m, 7, dir, NULL));
        snprintf(cut_path, sizeof cut_path, "%s/model.safetensors", dir);
        reset_copiers();
        disk.left = 0;
        disk.wrong = cut_the_file;
        assert_int_equal(load(dir, tp, 0, false, &reads, &needed, &e), ST_IO);
        if (!strstr(e.text, "model.safetensors: is cut off: no byte ")) fail_msg("\"%s\"", e.text);
        assert_true(reads.bytes < reads.needed);
        random_model_remove(dir);
    }
}

/* The embedding and the head are larger than the window: the others wait for what the failed rank does not take. */
static void a_rank_without_room(void **state) {
    (void)state;
    random_model m = model_of(WF_INT4_GROUP, false);
    m.vocab = 40000;
    char dir[64];
    assert_true(random_model_write(&m, 7, dir, NULL));
    for (i64 bad = 0; bad < RANKS_MOST; bad++)
        for (i64 at = 0; at < 24; at += 10) {
            char text[64];
            weight_reads reads;
            u64 needed;
            err e = {0};
            f64 start = now_s();
            reset_copiers();
            copiers[bad].fails_at = at;
            assert_int_equal(load(dir, RANKS_MOST, 0, false, &reads, &needed, &e), ST_NOMEM);
            snprintf(text, sizeof text, "rank %lld: ", (long long)bad);
            if (strncmp(e.text, text, strlen(text)) || !strstr(e.text, "no room for it")) fail_msg("\"%s\"", e.text);
            assert_true(now_s() - start < 20);
        }
    random_model_remove(dir);
}

int main(void) {
    log_set_quiet(true);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_once),
        cmocka_unit_test(a_file_that_is_cut),
        cmocka_unit_test(a_rank_without_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
