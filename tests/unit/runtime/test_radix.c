/* The prefix tree against a naive model: a list of paths, searched from end to end. Pages are named by one letter;
 * pages of different letters differ in one token, which stands anywhere. */
#include "unit.h"

#include "runtime/radix.h"
#include <string.h>

enum { PAGES = 24, DEPTH = 7, SEQS = 6, LETTERS = 3, SHARES = 5 };

static u64 rng_state = 5;
static i64 pick(i64 lo, i64 hi) {
    u64 z = rng_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return lo + (i64)((z ^ (z >> 31)) % (u64)(hi - lo + 1));
}

/* The model: a known path, its page, and when it was last let go. */
typedef struct {
    char path[DEPTH + 1];
    u64 space;
    bool known;
    i64 stamp;
} entry;

typedef struct {
    char path[DEPTH + 1];
    u64 space;
    i32 ids[DEPTH * KV_PAGE], pages[DEPTH];
    i64 n;
} sequence;

static entry model[PAGES];
static i64 holders[PAGES], clock_now;
static sequence seqs[SEQS];
static struct {
    sequence q; /* its pages are those of `path` */
    radix_path path;
} waiting[SEQS];
static radix tree;
static kv_pages pool;

static void write_ids(sequence *q) {
    for (i64 p = 0; q->path[p]; p++)
        for (i64 i = 0; i < KV_PAGE; i++)
            q->ids[p * KV_PAGE + i] = i == KV_PAGE - 1 - (q->path[p] - 'a') * 31 ? 1 + p % 2 : 0;
}

static i32 model_find(const char *path, i64 n, u64 space) {
    for (i32 i = 0; i < PAGES; i++)
        if (model[i].known && model[i].space == space && (i64)strlen(model[i].path) == n &&
            !strncmp(model[i].path, path, (size_t)n))
            return i;
    return -1;
}

static bool has_child(i32 page) {
    size_t n = strlen(model[page].path);
    for (int i = 0; i < PAGES; i++)
        if (model[i].known && model[i].space == model[page].space && strlen(model[i].path) == n + 1 &&
            !strncmp(model[i].path, model[page].path, n))
            return true;
    return false;
}

/* What the model evicts next: of the known pages that nobody holds, leaves only, the one let go first. */
static i32 model_victim(void) {
    i32 best = -1;
    for (i32 i = 0; i < PAGES; i++)
        if (model[i].known && !holders[i] && !has_child(i) && (best < 0 || model[i].stamp < model[best].stamp))
            best = i;
    return best;
}

static i64 model_free(void) {
    i64 n = 0;
    for (int i = 0; i < PAGES; i++) n += !model[i].known && !holders[i];
    return n;
}

/* Of pages that ranks divide, the share that the page behind `after` should be of, while there are free ones. */
static i64 model_share(i32 after) {
    i64 n[SHARES] = {0}, next = (after + 1) % SHARES, most = 0;
    for (int i = 0; i < PAGES; i++) n[i % SHARES] += !model[i].known && !holders[i];
    for (i64 s = 1; s < SHARES; s++) most = n[s] > n[most] ? s : most;
    return after >= 0 && n[next] ? next : most;
}

static i32 take(i32 after) {
    i64 spare = model_free();
    i32 victim = spare ? -1 : model_victim();
    i64 share = model_share(after);
    i32 page = radix_take(&tree, after);
    if (!spare) assert_int_equal(page, victim);
    if (spare) assert_int_equal(page % SHARES, share);
    if (page < 0) return -1;
    assert_true(holders[page] == 0);
    if (!spare) model[page].known = false;
    assert_false(model[page].known);
    holders[page] = 1;
    return page;
}

static void let_go(sequence *q) {
    radix_release(&tree, q->pages, q->n);
    while (q->n > 0) {
        i32 p = q->pages[--q->n];
        if (--holders[p] == 0) model[p].stamp = ++clock_now;
    }
}

static void random_path(sequence *q) {
    i64 n = pick(1, DEPTH);
    for (i64 i = 0; i < n; i++) q->path[i] = (char)('a' + pick(0, pick(0, LETTERS - 1)));
    q->path[n] = 0;
    q->space = (u64)pick(0, 5) / 5;
    write_ids(q);
}

/* What the tree has of q's beginning, and that it is what the model has. */
static i64 follow(sequence *q, i64 limit, radix_path *path, i64 lookups) {
    bool enough = lookups > limit;
    i64 had = lookups,
        have = radix_follow(&tree, q->space, &(radix_tokens){.ids = q->ids}, limit, q->pages, path, &lookups), want = 0;
    while (want < limit && model_find(q->path, want + 1, q->space) >= 0) {
        if (want < have) assert_int_equal(q->pages[want], model_find(q->path, want + 1, q->space));
        want++;
    }
    if (enough)
        assert_int_equal(have, want);
    else
        assert_true(have <= want && lookups >= 0 && lookups <= had);
    return have;
}

/* Those that wait ask again and again while the tree changes. Asked twice in a row, the second time costs nothing. */
static void wait_on(void) {
    i64 w = pick(0, SEQS - 1), none = 0;
    sequence *q = &waiting[w].q;
    if (!*q->path || !pick(0, 99)) {
        random_path(q);
        waiting[w].path = (radix_path){0};
    }
    i64 limit = pick(0, (i64)strlen(q->path)), have = follow(q, limit, &waiting[w].path, pick(0, 2) * DEPTH);
    assert_int_equal(
        radix_follow(&tree, q->space, &(radix_tokens){.ids = q->ids}, limit, q->pages, &waiting[w].path, &none), have);
}

static void begin(sequence *q) {
    radix_path path = {0};
    random_path(q);
    i64 n = (i64)strlen(q->path), have = follow(q, pick(0, n), &path, DEPTH + 1);
    radix_hold(&tree, q->pages, have);
    for (i64 i = 0; i < have; i++) holders[q->pages[i]]++;
    for (q->n = have; q->n < n; q->n++) {
        i32 page = take(q->n ? q->pages[q->n - 1] : -1);
        if (page < 0) break;
        q->pages[q->n] = page;
    }
    if (q->n < n) let_go(q);
}

static void remember(sequence *q) {
    i64 n = pick(0, q->n);
    radix_insert(&tree, q->space, &(radix_tokens){.ids = q->ids}, q->pages, n);
    for (i64 i = 0; i < n; i++) {
        if (model_find(q->path, i + 1, q->space) >= 0) continue;
        entry *x = &model[q->pages[i]];
        assert_false(x->known);
        x->known = true;
        x->space = q->space;
        memcpy(x->path, q->path, (size_t)i + 1);
        x->path[i + 1] = 0;
    }
}

static void check(void) {
    u32 held[PAGES] = {0};
    err e = {0};
    i64 known = 0;
    for (int i = 0; i < SEQS; i++)
        for (i64 p = 0; p < seqs[i].n; p++) held[seqs[i].pages[p]]++;
    for (int i = 0; i < PAGES; i++) {
        assert_int_equal(held[i], holders[i]);
        known += model[i].known;
    }
    if (radix_check(&tree, held, &e) != ST_OK) fail_msg("%s", e.text);
    assert_int_equal(tree.n_nodes, known);
    assert_int_equal(pool.n_free, model_free());
}

static void behaves_like_the_naive_model(void **state) {
    (void)state;
    assert_int_equal(kv_pages_open(&pool, PAGES, SHARES, NULL), ST_OK);
    assert_int_equal(radix_open(&tree, &pool, NULL), ST_OK);
    for (int i = 0; i < 60000; i++) {
        sequence *q = &seqs[pick(0, SEQS - 1)];
        if (!q->n)
            begin(q);
        else if (pick(0, 1))
            remember(q);
        else
            let_go(q);
        check();
        wait_on();
    }
    assert_true(tree.n_evicted > 1000);
    for (int i = 0; i < SEQS; i++) let_go(&seqs[i]);
    radix_flush(&tree);
    assert_int_equal(pool.n_free, PAGES);
    radix_close(&tree);
    kv_pages_close(&pool);
}

/* Sequences whose pages are of one share: pages are taken and evicted there, and of a beginning that two computed at a
 * time, each in its share, the longer one is found. */
static void sequences_stay_in_a_share(void **state) {
    (void)state;
    enum { ALL = 8, LONG = 3 };
    i32 ids[LONG * KV_PAGE] = {0}, a[LONG], b[LONG], found[LONG];
    u32 held[ALL] = {0};
    for (int i = 0; i < LONG * KV_PAGE; i++) ids[i] = i;
    assert_int_equal(kv_pages_open(&pool, ALL, 2, NULL), ST_OK);
    pool.by_sequence = true;
    assert_int_equal(radix_open(&tree, &pool, NULL), ST_OK);
    for (int i = 0; i < LONG; i++) a[i] = radix_take(&tree, i ? a[i - 1] : radix_begin(&tree));
    assert_true(a[0] % 2 == a[1] % 2 && a[1] % 2 == a[2] % 2);
    for (int i = 0; i < LONG; i++) b[i] = radix_take(&tree, i ? b[i - 1] : radix_begin(&tree));
    assert_true(b[0] % 2 != a[0] % 2 && b[0] % 2 == b[1] % 2 && b[1] % 2 == b[2] % 2);
    radix_insert(&tree, 0, &(radix_tokens){.ids = ids}, a, 2);
    radix_insert(&tree, 0, &(radix_tokens){.ids = ids}, b, LONG);
    assert_int_equal(tree.n_nodes, 2 + LONG);
    i64 lookups = 100;
    radix_path p = {0};
    assert_int_equal(radix_follow(&tree, 0, &(radix_tokens){.ids = ids}, LONG, found, &p, &lookups), LONG);
    assert_memory_equal(found, b, sizeof b);
    p = (radix_path){0};
    assert_int_equal(radix_follow(&tree, 1, &(radix_tokens){.ids = ids}, LONG, found, &p, &lookups), 0);
    radix_release(&tree, a, LONG);
    radix_release(&tree, b, LONG);
    assert_int_equal(radix_check(&tree, held, NULL), ST_OK);
    for (int i = 0; i < ALL / 2; i++) { /* all of a's share, whose cache goes */
        i32 page = radix_take(&tree, a[0]);
        assert_true(page >= 0 && page % 2 == a[0] % 2);
    }
    i32 other = radix_take(&tree, b[0]);
    radix_insert(&tree, 1, &(radix_tokens){.ids = ids}, &other, 1);
    radix_release(&tree, &other, 1);
    const i64 evicted = tree.n_evicted;
    assert_int_equal(tree.n_idle_of[b[0] % 2], LONG + 1);
    assert_int_equal(radix_take(&tree, a[0]), -1);
    assert_int_equal(tree.n_evicted, evicted); /* what others have cached is of no use there */
    assert_true(radix_take(&tree, b[0]) >= 0);
    for (int i = 0; i < ALL; i++)
        if (pool.refs[i]) kv_pages_unref(&pool, i);
    radix_close(&tree);
    kv_pages_close(&pool);
}

/* The check must be able to fail. */
static void damage_is_found(void **state) {
    (void)state;
    i32 ids[2 * KV_PAGE] = {0}, pages[2];
    u32 held[4] = {0};
    assert_int_equal(kv_pages_open(&pool, 4, 1, NULL), ST_OK);
    assert_int_equal(radix_open(&tree, &pool, NULL), ST_OK);
    tree.seed = 1; /* by chance other tokens may belong into the same bucket: with this seed they do not */
    for (int i = 0; i < 2; i++) pages[i] = radix_take(&tree, -1);
    radix_insert(&tree, 0, &(radix_tokens){.ids = ids}, pages, 2);
    radix_release(&tree, pages, 2);
    assert_int_equal(radix_check(&tree, held, NULL), ST_OK);
    memset(held, 0, sizeof held);
    held[pages[0]] = 1; /* somebody holds a page that is not counted */
    assert_int_equal(radix_check(&tree, held, NULL), ST_LIMIT);
    memset(held, 0, sizeof held);
    tree.nodes[pages[1]].tokens[5] = 9; /* a node that is not found any more */
    assert_int_equal(radix_check(&tree, held, NULL), ST_LIMIT);
    tree.nodes[pages[1]].tokens[5] = 0;
    memset(held, 0, sizeof held);
    pool.refs[pages[1]]++;
    assert_int_equal(radix_check(&tree, held, NULL), ST_LIMIT);
    pool.refs[pages[1]]--;
    memset(held, 0, sizeof held);
    pool.n_free--; /* a page lost */
    assert_int_equal(radix_check(&tree, held, NULL), ST_LIMIT);
    pool.n_free++;
    radix_close(&tree);
    kv_pages_close(&pool);
}

/* A page at a time, the sequence that was used last goes last, each from its end. */
static void what_is_touched_goes_last(void **state) {
    (void)state;
    enum { N = 3 };
    kv_pages pool;
    radix tree;
    i32 ids[2][N * KV_PAGE], pages[2][N], left[2][N];
    i64 all = INT64_MAX;
    assert_int_equal(kv_pages_open(&pool, 2 * N, 1, NULL), ST_OK);
    assert_int_equal(radix_open(&tree, &pool, NULL), ST_OK);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < N * KV_PAGE; i++) ids[k][i] = 1000 * k + i;
        for (int i = 0; i < N; i++) pages[k][i] = radix_take(&tree, -1);
        radix_insert(&tree, 0, &(radix_tokens){.ids = ids[k]}, pages[k], N);
        for (int i = 0; i < N; i++) radix_release(&tree, pages[k] + i, 1); /* its end last */
    }
    radix_touch(&tree, pages[0][N - 1]);
    for (int gone = 1; gone <= 2 * N; gone++) {
        assert_true(radix_take(&tree, -1) >= 0);
        for (int k = 0; k < 2; k++) {
            radix_path path = {0};
            const i64 want = max_i64(0, min_i64(N, (k ? N : 2 * N) - gone));
            assert_int_equal(radix_follow(&tree, 0, &(radix_tokens){.ids = ids[k]}, N, left[k], &path, &all), want);
        }
    }
    assert_int_equal(radix_take(&tree, -1), -1);
    radix_close(&tree);
    kv_pages_close(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(behaves_like_the_naive_model),
        cmocka_unit_test(sequences_stay_in_a_share),
        cmocka_unit_test(what_is_touched_goes_last),
        cmocka_unit_test(damage_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
