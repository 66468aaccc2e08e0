/* kernels/cpu/prefill_amx_tmpl.h: a prompt's attention by AMX's tiles, behind dot_amx_tmpl.h and attn_tmpl.h.
 *
 * With their running maximum, a page at a time, sixteen query rows at a time. Keys and values of a page, and
 * probabilities, are rounded to bf16, what tiles multiply.
 *
 * A probability of zero times a NaN is a NaN, so rows that do not see a value which is not finite are done with that
 * value as zero, one by one. */

enum { PAGE_TILES = KV_PAGE / TILE };

/* Workspace of a thread. Pairs are as lay_pairs() leaves them. */
typedef struct {
    bf16 *page;   /* [KV_PAGE, latent + rope], where the cache's cannot be used in place */
    u8 *key_rows; /* [nope / 16 tiles][steps] pairs of the head's part of kv_b, and the same of its values */
    u8 *value_rows;
    bf16 *key;  /* [KV_PAGE, nope + rope] */
    u8 *keys;   /* its pairs: [PAGE_TILES][steps] */
    u8 *values; /* pairs of tokens: [v_dim / 16 tiles][KV_PAGE / 32 steps] */
    f32 *acc;   /* [n rounded up to 16, v_dim] */
    f32 *state; /* [n rounded up to 16, 2]: max and sum */
    bf16 *q;    /* [16, nope + rope]: the last rows, with zeros behind them */
} tiled_mem;

/* Do all parts come out in whole tiles? */
INLINE bool prefill_in_tiles(const mla_prefill_args *a) {
    return a->kv_b->views[0].format == WF_BF16 && a->kv_type != DT_F32 && a->latent % TILE_K == 0 &&
           a->nope % TILE == 0 && a->v_dim % TILE == 0 && (a->latent + a->rope) % TILE_K == 0 &&
           (a->nope + a->rope) % TILE_K == 0 && a->v_dim <= a->nope + a->rope &&
           a->v_dim <= 2 * (a->latent + a->rope); /* tiled_sum_of_row() */
}

static u64 tiled_space(const mla_prefill_args *a, u8 *at, tiled_mem *m) {
    const i64 width = a->latent + a->rope, key = a->nope + a->rope, rows = ceil_div(a->n, TILE) * TILE;
    const u64 bytes[] = {(u64)(KV_PAGE * width * 2),
                         (u64)(a->nope * a->latent * 2),
                         (u64)(a->v_dim * a->latent * 2),
                         (u64)(KV_PAGE * key * 2),
                         (u64)(KV_PAGE * key * 2),
                         (u64)(KV_PAGE * a->v_dim * 2),
                         (u64)(rows * a->v_dim * 4),
                         (u64)(rows * 2 * 4),
                         (u64)(TILE * key * 2)};
    u64 from[COUNT_OF(bytes)], all = 0;
    for (size_t i = 0; i < COUNT_OF(bytes); i++) from[i] = all, all += cpu_round64(bytes[i]);
    if (m)
        *m = (tiled_mem){(bf16 *)(at + from[0]), at + from[1],          at + from[2],
                         (bf16 *)(at + from[3]), at + from[4],          at + from[5],
                         (f32 *)(at + from[6]),  (f32 *)(at + from[7]), (bf16 *)(at + from[8])};
    return all;
}

/* Pairs of rows [row, row + n) of kv_b. */
static void lay_weight(const weight_view *w, i64 row, i64 n, u8 *out) {
    for (i64 r = 0; r < n; r += TILE) {
        const bf16 *x[TILE];
        for (i64 i = 0; i < TILE; i++) x[i] = (const bf16 *)w->data + (row + r + i) * w->cols;
        lay_pairs(x, TILE, 0, w->cols, out + r * w->cols * 2);
    }
}

/* The first n tokens of a page as bf16 [KV_PAGE, width], zeros behind them. */
static const bf16 *whole_page(const mla_prefill_args *a, i64 page, i64 n, bf16 *buf) {
    const i64 width = a->latent + a->rope;
    const mat m = page_mat(a->kv, a->kv_type, page, n, width, buf);
    if (n == KV_PAGE) return m.p;
    if (m.p != buf) memcpy(buf, m.p, (size_t)(n * width) * sizeof *buf);
    memset(buf + n * width, 0, (size_t)((KV_PAGE - n) * width) * sizeof *buf);
    return buf;
}

/* Keys of a page's tokens for the head: expanded from the latents, the rotated part as it is. */
static void tiled_keys(const mla_prefill_args *a, const tiled_mem *m, const bf16 *page) {
    const i64 width = a->latent + a->rope, key = a->nope + a->rope, steps = a->latent / TILE_K;
    _Alignas(64) f32 sums[X_TILES * TILE * TILE];
    const bf16 *rows[KV_PAGE];
    for (i64 t = 0; t < KV_PAGE; t += TILE)
        for (i64 d = 0; d < a->nope; d += TILE * X_TILES) {
            const i64 tiles = min_i64(X_TILES, (a->nope - d) / TILE), bytes = tiles * TILE * 4;
            tiles_mac(page + t * width, width * 2, 1, m->key_rows + d * a->latent * 2, tiles, steps, 64,
                      (tile_sums){sums, TILE * 4, bytes}, true);
            for (i64 i = 0; i < TILE; i++)
                store_act(m->key, DT_BF16, (t + i) * key + d, sums + i * tiles * TILE, tiles * TILE);
        }
    for (i64 t = 0; t < KV_PAGE; t++) {
        rows[t] = m->key + t * key;
        memcpy(m->key + t * key + a->nope, page + t * width + a->latent, (size_t)a->rope * sizeof(bf16));
    }
    lay_pairs(rows, KV_PAGE, 0, key, m->keys);
}

/* Two rows of sixteen sums as pairs of bf16. */
INLINE __m512i pair_rows(__m512 even, __m512 odd) {
    const __m512i e = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(even)),
                  o = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(odd));
    return _mm512_or_si512(e, _mm512_slli_epi32(o, 16));
}

/* Values of a page's tokens for the head. Are all of them finite? */
static bool tiled_values(const mla_prefill_args *a, const tiled_mem *m, const bf16 *page) {
    enum { STEPS = KV_PAGE / TILE_K };
    const i64 width = a->latent + a->rope, steps = a->latent / TILE_K;
    const __m512i exponents = _mm512_set1_epi16(0x7f80);
    _Alignas(64) f32 sums[X_TILES * TILE * TILE];
    __mmask32 odd = 0;
    for (i64 t = 0; t < KV_PAGE; t += TILE)
        for (i64 d = 0; d < a->v_dim; d += TILE * X_TILES) {
            const i64 tiles = min_i64(X_TILES, (a->v_dim - d) / TILE);
            tiles_mac(page + t * width, width * 2, 1, m->value_rows + d * a->latent * 2, tiles, steps, 64,
                      (tile_sums){sums, TILE * TILE * 4, TILE * 4}, true);
            for (i64 j = 0; j < tiles; j++)
                for (i64 i = 0; i < TILE; i += 2) {
                    const f32 *from = sums + (j * TILE + i) * TILE;
                    const __m512i v = pair_rows(_mm512_load_ps(from), _mm512_load_ps(from + TILE));
                    odd |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(v, exponents), exponents);
                    _mm512_store_si512(m->values + (((d / TILE + j) * STEPS * TILE) + (t + i) / 2) * 64, v);
                }
        }
    return !odd;
}

/* acc [16, v_dim] += p [16, KV_PAGE] times the values. */
static void tiled_sum(const bf16 *p, const u8 *values, i64 v_dim, f32 *acc) {
    for (i64 d = 0; d < v_dim; d += TILE * X_TILES)
        tiles_mac(p, KV_PAGE * 2, 1, values + d * KV_PAGE * 2, min_i64(X_TILES, (v_dim - d) / TILE), KV_PAGE / TILE_K,
                  64, (tile_sums){acc + d, TILE * 4, v_dim * 4}, false);
}

/* The same for one row, with all values from token `seen` on as zero. */
static void tiled_sum_of_row(const mla_prefill_args *a, const tiled_mem *m, const bf16 *p, i64 row, i64 seen,
                             f32 *acc) {
    const u64 bytes = (u64)(KV_PAGE * a->v_dim * 2);
    u8 *kept = (u8 *)m->key; /* not needed any more when all rows have their scores */
    f32 *sums = (f32 *)m->page;
    memcpy(kept, m->values, bytes);
    for (i64 t = seen; t < KV_PAGE; t++)
        for (i64 d = 0; d < a->v_dim; d++)
            ((bf16 *)kept)[(d / TILE * KV_PAGE / 2 + t / 2) * 32 + d % TILE * 2 + t % 2] = 0;
    memset(sums, 0, (size_t)(TILE * a->v_dim) * sizeof *sums);
    memcpy(sums + row * a->v_dim, acc + row * a->v_dim, (size_t)a->v_dim * sizeof *acc);
    tiled_sum(p, kept, a->v_dim, sums);
    memcpy(acc + row * a->v_dim, sums + row * a->v_dim, (size_t)a->v_dim * sizeof *acc);
}

/* How many of the n tokens from position t on row i sees. */
INLINE i64 tiled_seen(const mla_prefill_args *a, i64 i, i64 t, i64 n) {
    return max_i64(0, min_i64(n, a->pos0 + i + 1 - t)); /* causal */
}

/* Query rows [i, i + 16) against the n tokens of the page that starts at position t. */
static void tiled_rows(const mla_prefill_args *a, const tiled_mem *m, i64 h, i64 i, i64 t, i64 n, bool finite) {
    const i64 key = a->nope + a->rope, stride = a->n_heads * key, rows = min_i64(TILE, a->n - i);
    const bf16 *q = (const bf16 *)a->q + (i * a->n_heads + h) * key;
    f32 *acc = m->acc + i * a->v_dim;
    _Alignas(64) f32 s[TILE * KV_PAGE];
    _Alignas(64) bf16 p[TILE * KV_PAGE];
    if (rows < TILE) lay_rest(q, stride, rows, key, m->q, key);
    tiles_mac(rows < TILE ? m->q : q, (rows < TILE ? key : stride) * 2, 1, m->keys, PAGE_TILES, key / TILE_K, 64,
              (tile_sums){s, TILE * 4, KV_PAGE * 4}, true);
    for (i64 r = 0; r < rows; r++) {
        f32 *state = m->state + (i + r) * 2;
        const f32 shrink = softmax_step(s + r * KV_PAGE, tiled_seen(a, i + r, t, n), a->scale, state, state + 1);
        scale_f32(acc + r * a->v_dim, a->v_dim, shrink);
    }
    for (i64 c = 0; c < TILE * KV_PAGE; c += VL)
        _mm256_store_si256((__m256i *)(p + c), (__m256i)_mm512_cvtneps_pbh(_mm512_load_ps(s + c)));
    if (finite || tiled_seen(a, i, t, n) == n)
        tiled_sum(p, m->values, a->v_dim, acc);
    else
        for (i64 r = 0; r < rows; r++) tiled_sum_of_row(a, m, p, r, tiled_seen(a, i + r, t, n), acc);
}

static void tiled_head(const mla_prefill_args *a, const tiled_mem *m, i64 h) {
    const weight_view *w = &a->kv_b->views[0];
    const i64 first = h * (a->kv_b->nope + a->kv_b->v_dim), end = a->pos0 + a->n, rows = ceil_div(a->n, TILE) * TILE;
    lay_weight(w, first, a->nope, m->key_rows);
    lay_weight(w, first + a->kv_b->nope, a->v_dim, m->value_rows);
    memset(m->acc, 0, (size_t)(rows * a->v_dim) * sizeof *m->acc);
    for (i64 i = 0; i < rows; i++) m->state[2 * i] = -INFINITY, m->state[2 * i + 1] = 0;
    tiles_begin(64);
    for (i64 t = 0; t < end; t += KV_PAGE) {
        const i64 n = min_i64(KV_PAGE, end - t);
        const bf16 *page = whole_page(a, a->pages[t / KV_PAGE], n, m->page);
        tiled_keys(a, m, page);
        const bool finite = tiled_values(a, m, page);
        for (i64 i = max_i64(0, t - a->pos0) / TILE * TILE; i < a->n; i += TILE) tiled_rows(a, m, h, i, t, n, finite);
    }
    _tile_release();
    /* A row goes through what it does not see of its tile's pages, too: -0 becomes 0 there. */
    for (i64 i = 0; i < a->n; i++) {
        f32 *acc = m->acc + i * a->v_dim;
        for (i64 c = 0; c < a->v_dim; c++) acc[c] = acc[c] / m->state[2 * i + 1] + 0.0f; /* never -0 */
        store_act(a->out, DT_BF16, (i * a->n_heads + h) * a->v_dim, acc, a->v_dim);
    }
}

static void tiled_prefill(const mla_prefill_args *a) {
    const u64 space = tiled_space(a, NULL, NULL);
    team tm = team_begin((a->pos0 + a->n) * a->n_heads * (a->nope + a->v_dim) * a->latent);
#pragma omp parallel for schedule(dynamic) num_threads(tm.threads)
    for (i64 h = 0; h < a->n_heads; h++) {
        tiled_mem m;
        tiled_space(a, (u8 *)a->workspace + (u64)cpu_thread() * space, &m);
        tiled_head(a, &m, h);
    }
    team_end(&tm);
}
