/* kernels/cpu/decode_amx_tmpl.h: decoding's attention by AMX's tiles, behind prefill_amx_tmpl.h.
 *
 * A page at a time against sixteen heads of a row. Scores are products of the page's rows as they lie with the
 * heads' queries, laid down in pairs once; values are the same rows, two tokens side by side. A long context is cut
 * into parts, which threads share; where depends on the row's own length alone. */

enum {
    CUTS = 4,          /* parts of a context that is cut */
    CUT_FROM = 16,     /* pages of the shortest such */
    ROWS_TOGETHER = 16 /* rows whose parts are in memory at a time */
};

/* What one part of a row's context leaves of sixteen heads. */
typedef struct {
    f32 *max, *sum; /* [16] */
    f32 *acc;       /* [16, latent] */
} decode_part;

/* Workspace of a thread: queries' pairs, a page in bf16, its values' pairs. */
typedef struct {
    u8 *queries; /* [heads / 16][steps][16 pairs][16 heads] */
    bf16 *page;  /* [KV_PAGE, latent + rope] */
    u8 *values;  /* [latent / 16 tiles][KV_PAGE / 32 steps][16 pairs][16 columns] */
} decode_mem;

INLINE bool decode_in_tiles(const mla_decode_args *a) {
    return a->n_heads >= TILE / 2 && a->kv_type != DT_F32 && a->latent % TILE_K == 0 &&
           (a->latent + a->rope) % TILE_K == 0;
}

static u64 decode_mem_at(const mla_decode_args *a, u8 *at, decode_mem *m) {
    const u64 width = (u64)(a->latent + a->rope),
              queries = cpu_round64(width * TILE * 2 * (u64)ceil_div(a->n_heads, TILE)),
              page = cpu_round64(KV_PAGE * width * 2), values = cpu_round64((u64)(KV_PAGE * a->latent * 2));
    if (m) *m = (decode_mem){at, (bf16 *)(at + queries), at + queries + page};
    return queries + page + values;
}

INLINE u64 decode_part_bytes(const mla_decode_args *a) { return (u64)(TILE * (2 + a->latent)) * sizeof(f32); }

static u64 tiled_decode_workspace(const mla_decode_args *a) {
    const u64 parts = (u64)(min_i64(a->n, ROWS_TOGETHER) * ceil_div(a->n_heads, TILE) * CUTS);
    return decode_mem_at(a, NULL, NULL) * (u64)team_max() + parts * decode_part_bytes(a);
}

/* Columns [0, dim) of the first m tokens of a page in pairs of tokens, zero behind them. */
static void lay_values(const bf16 *page, i64 width, i64 m, i64 dim, u8 *out) {
    for (i64 d = 0; d < dim; d += TILE_K, out += 2 * KV_PAGE / 2 * 64)
        for (i64 t = 0; t < KV_PAGE; t += 2) {
            const bf16 *row = page + t * width + d;
            const __m512i even = t < m ? _mm512_loadu_si512(row) : _mm512_setzero_si512(),
                          odd = t + 1 < m ? _mm512_loadu_si512(row + width) : _mm512_setzero_si512();
            const __m512i low = _mm512_unpacklo_epi16(even, odd), high = _mm512_unpackhi_epi16(even, odd);
            const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                          second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
            _mm512_store_si512(out + t / 2 * 64, _mm512_permutex2var_epi64(low, first, high));
            _mm512_store_si512(out + (KV_PAGE / 2 + t / 2) * 64, _mm512_permutex2var_epi64(low, second, high));
        }
}

/* Scores [16 heads, KV_PAGE] of a page. */
static void tiled_scores(const mla_decode_args *a, const u8 *queries, const bf16 *page, f32 *s) {
    const i64 width = a->latent + a->rope;
    _Alignas(64) f32 sums[PAGE_TILES * TILE * TILE];
    tiles_mac(page, width * 2, PAGE_TILES, queries, 1, width / TILE_K, 64, (tile_sums){sums, SUM_BYTES, 64}, true);
    for (i64 t = 0; t < PAGE_TILES; t++) {
        __m512i v[TILE];
        for (i64 i = 0; i < TILE; i++) v[i] = _mm512_load_si512(sums + (t * TILE + i) * TILE);
        transpose16(v);
        for (i64 i = 0; i < TILE; i++) _mm512_store_si512(s + i * KV_PAGE + t * TILE, v[i]);
    }
}

INLINE decode_part part_at(f32 *p) { return (decode_part){p, p + TILE, p + 2 * TILE}; }

/* The first n tokens of a page against sixteen heads. */
static void tiled_page(const mla_decode_args *a, const bf16 *page, const u8 *queries, const u8 *values, i64 n,
                       decode_part d) {
    _Alignas(64) f32 s[TILE * KV_PAGE];
    _Alignas(64) bf16 p[TILE * KV_PAGE];
    tiled_scores(a, queries, page, s);
    for (i64 h = 0; h < TILE; h++)
        scale_f32(d.acc + h * a->latent, a->latent, softmax_step(s + h * KV_PAGE, n, a->scale, &d.max[h], &d.sum[h]));
    for (i64 c = 0; c < TILE * KV_PAGE; c += VL)
        _mm256_store_si256((__m256i *)(p + c), (__m256i)_mm512_cvtneps_pbh(_mm512_load_ps(s + c)));
    tiled_sum(p, values, a->latent, d.acc);
}

/* Part `cut` of `cuts` of row i's context for `groups` times sixteen heads from h0 on, whose parts are `next` floats
 * from one another. */
static void tiled_part(const mla_decode_args *a, const decode_mem *m, i64 i, i64 h0, i64 groups, i64 cut, i64 cuts,
                       f32 *parts, i64 next) {
    const i64 width = a->latent + a->rope, pages = ceil_div(a->kv_len[i], KV_PAGE), end = pages * (cut + 1) / cuts;
    const i32 *list = a->pages + i * a->pages_stride;
    for (i64 g = 0; g < groups; g++) {
        const bf16 *q[TILE];
        const decode_part d = part_at(parts + g * next);
        for (i64 h = 0; h < TILE; h++) {
            const i64 head = min_i64(h0 + g * TILE + h, a->n_heads - 1); /* the last one again where there is none */
            q[h] = (const bf16 *)a->q + (i * a->n_heads + head) * width;
            d.max[h] = -INFINITY, d.sum[h] = 0;
        }
        memset(d.acc, 0, (size_t)(TILE * a->latent) * sizeof *d.acc);
        lay_pairs(q, TILE, 0, width, m->queries + g * width * TILE * 2);
    }
    tiles_begin(64);
    for (i64 k = pages * cut / cuts; k < end; k++) {
        const i64 n = min_i64(KV_PAGE, a->kv_len[i] - k * KV_PAGE);
        const bf16 *page = page_mat(a->kv, a->kv_type, list[k], n, width, m->page).p;
        const u8 *after =
            (const u8 *)a->kv + (i64)list[min_i64(k + 1, end - 1)] * KV_PAGE * width * (i64)dtype_size(a->kv_type);
        for (i64 b = 0; b < KV_PAGE * width * (i64)dtype_size(a->kv_type); b += 64)
            _mm_prefetch((const char *)(after + b), _MM_HINT_T1);
        lay_values(page, width, n, a->latent, m->values);
        for (i64 g = 0; g < groups; g++)
            tiled_page(a, page, m->queries + g * width * TILE * 2, m->values, n, part_at(parts + g * next));
    }
    _tile_release();
}

INLINE i64 cuts_of(i64 kv_len) { return kv_len > CUT_FROM * KV_PAGE ? CUTS : 1; }

/* The parts of head h of row i, joined; `next` floats from one to the next. */
static void join_parts(const mla_decode_args *a, i64 i, i64 h, decode_part d, i64 cuts, i64 next) {
    const i64 at = i * a->n_heads + h, k = h % TILE;
    f32 max = -INFINITY, sum = 0, weight[CUTS];
    for (i64 c = 0; c < cuts; c++)
        max = d.max[k + c * next] > max || isnan(d.max[k + c * next]) ? d.max[k + c * next] : max;
    for (i64 c = 0; c < cuts; c++) {
        weight[c] = d.max[k + c * next] == max ? 1 : expf(d.max[k + c * next] - max);
        sum += weight[c] * d.sum[k + c * next];
    }
    if (a->lse) a->lse[at] = max + logf(sum); /* of no token: -infinity */
    if (!a->kv_len[i]) return;
    f32 *acc = d.acc + k * a->latent;
    for (i64 x = 0; x < a->latent; x++) {
        f32 v = 0;
        for (i64 c = 0; c < cuts; c++) v += weight[c] * acc[c * next + x];
        acc[x] = v / sum;
    }
    store_act(a->out, DT_BF16, at * a->latent, acc, a->latent);
}

static void tiled_decode(const mla_decode_args *a) {
    const u64 space = decode_mem_at(a, NULL, NULL);
    const i64 groups = ceil_div(a->n_heads, TILE), next = (i64)decode_part_bytes(a) / (i64)sizeof(f32);
    f32 *parts = (f32 *)((u8 *)a->workspace + space * (u64)team_max());
    i64 tokens = 0;
    for (i64 i = 0; i < a->n; i++) tokens += a->kv_len[i];
    team tm = team_begin(tokens * a->n_heads * (2 * a->latent + a->rope));
#pragma omp parallel num_threads(tm.threads)
    for (i64 first = 0; first < a->n; first += ROWS_TOGETHER) {
        const i64 rows = min_i64(ROWS_TOGETHER, a->n - first),
                  each =
                      rows * CUTS < 2 * tm.threads ? 1 : groups; /* heads of a page together, if nobody is idle then */
#pragma omp for schedule(dynamic)
        for (i64 it = 0; it < rows * CUTS * (groups / each); it++) {
            const i64 cut = it % CUTS, r = it / CUTS % rows, g = it / CUTS / rows * each;
            const i64 i = first + r, cuts = cuts_of(a->kv_len[i]);
            decode_mem m;
            decode_mem_at(a, (u8 *)a->workspace + (u64)cpu_thread() * space, &m);
            if (cut < cuts)
                tiled_part(a, &m, i, g * TILE, each, cut, cuts, parts + ((r * CUTS + cut) * groups + g) * next, next);
        }
#pragma omp for schedule(static)
        for (i64 it = 0; it < rows * a->n_heads; it++) {
            const i64 r = it / a->n_heads, h = it % a->n_heads;
            join_parts(a, first + r, h, part_at(parts + (r * CUTS * groups + h / TILE) * next),
                       cuts_of(a->kv_len[first + r]), groups * next);
        }
    }
    team_end(&tm);
}
