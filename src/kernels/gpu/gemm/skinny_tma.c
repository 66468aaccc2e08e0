/* kernels/gpu/gemm/skinny_tma.c: products of 17 to 64 rows of x (skinny_tma.cu): which calls it takes, and how they
 * are cut into tiles. */
#include "kernels/gpu/backend.h"

enum {
    UNIT = 64,
    CLUSTER_MAX = 8,
    HIGHEST = 256,   /* rows of a tile */
    SPLIT_UPTO = 64, /* rows of a tile, of whose units two warpgroups have half of the columns each */
    AFTER_UPTO = 144,
    X_STAGES = 5,                                                                     /* at first */
    GATES_MOST = (3 * GPU_SKINNY * 32 + SKINNY_TMA_THREADS - 1) / SKINNY_TMA_THREADS, /* blocks */
    X_BYTES = GPU_SKINNY * UNIT * 2
};

typedef struct {
    i64 height, cluster, tiles;
} skinny_tma_cut;

static i64 tiles_of(const gpu_skinny_args *k, i64 height) {
    i64 tiles = 0;
    for (int i = 0; i < GPU_PARTS && k->part[i].w; i++)
        tiles += ceil_div(k->part[i].rows, k->part[i].up ? height / 2 : height);
    return tiles;
}

/* Clusters of c blocks that run at once, a block a multiprocessor. Measured on a chip of 132, where each lies within a
 * part of 14 to 18 (32 of 4 and 16 of 8 took two rounds); for a share of a chip, that share of them. */
static i64 at_once(i64 c, i64 processors) { return (c == 1 ? 128 : c == 2 ? 64 : c == 4 ? 30 : 15) * processors / 132; }

/* Nanoseconds, about: a multiprocessor gets 37 bytes in one from the L2 cache; blocks of a cluster meet and read
 * each other's sums. */
static i64 cost_of(i64 height, i64 cluster, i64 units) {
    i64 bytes = (height + GPU_SKINNY) * UNIT * 2 * ceil_div(units, cluster);
    return bytes / 37 + (cluster > 1 ? 1200 + height * GPU_SKINNY * 4 * (cluster - 1) / cluster / 30 : 0);
}

/* The lowest tiles that are all under way at once, `beside` more blocks too, in the best of clusters. */
static bool tma_cut(const gpu_skinny_args *k, i64 units, i64 highest, i64 other_blocks, i64 processors,
                    skinny_tma_cut *best) {
    i64 best_cost = 0;
    bool up = false;
    for (int i = 0; i < GPU_PARTS && k->part[i].w; i++) up |= k->part[i].up != NULL;
    for (i64 c = 1; c <= CLUSTER_MAX && c <= units; c *= 2) {
        i64 height = 32, cost;
        while (tiles_of(k, height) * c > at_once(c, processors) * c - other_blocks && height <= highest)
            height += up || height >= SPLIT_UPTO ? 16 : 8;
        if (height > highest) continue;
        cost = cost_of(height, c, units);
        if (best_cost && cost >= best_cost) continue;
        best_cost = cost, *best = (skinny_tma_cut){height, c, tiles_of(k, height)};
    }
    return best_cost > 0;
}

static void map_of(const gpu_backend *b, void *map, const gpu_bf16 *at, i64 rows, i64 stride, i64 cols, i64 box) {
    gpu_tensor(b->g, map, at, (const u64[3]){UNIT, (u64)rows, (u64)(cols / UNIT)},
               (const u64[2]){(u64)stride * 2, UNIT * 2}, (const u32[3]){UNIT, (u32)box, 1});
}

static u32 skinny_tma_shared(const gpu_skinny_tma_args *k) { return (u32)k->state + SKINNY_TMA_STATE; }

/* Stages: all of the block's units if there is room, else weights first. */
static void share_memory(gpu_skinny_tma_args *k) {
    i64 max_stages = ceil_div(k->units, k->cluster), room = SKINNY_TMA_SHARED - SKINNY_TMA_STATE,
        unit = k->height * UNIT * 2, x = min_i64(max_stages, X_STAGES),
        w = min_i64(min_i64(max_stages, SKINNY_TMA_STAGES), (room - x * X_BYTES) / unit),
        sums = (k->height + 8) * GPU_SKINNY * 4;
    x = min_i64(min_i64(max_stages, SKINNY_TMA_STAGES), (room - w * unit) / X_BYTES);
    k->weight_stages = (int)w, k->x_stages = (int)x;
    k->state = (int)gpu_round((u64)max_i64(w * unit + x * X_BYTES, sums));
}

static bool is_whole(const gpu_skinny_part *p) { /* four values at once */
    return (u64)(uintptr_t)p->y % 16 == 0 && p->y_stride % 4 == 0;
}

bool gpu_run_skinny_tma(const gpu_backend *b, const gpu_skinny_args *k, const gpu_skinny_gate_args *gate, i64 *parts) {
    bool add = k->after.x != NULL;
    skinny_tma_cut c;
    gpu_skinny_tma_gate_args g = {.product = {.n = k->n, .deferred = k->deferred, .after = k->after}};
    gpu_skinny_tma_args *p = &g.product;
    if (k->cols % UNIT || k->w_stride % 8 || k->x_stride % 8) return false;
    p->units = (int)(k->cols / UNIT);
    for (int i = 0; i < GPU_PARTS && k->part[i].w; i++)
        if (!add && !is_whole(&k->part[i])) return false;
    i64 gates = gate ? gpu_gate_blocks(gate, SKINNY_TMA_THREADS, SKINNY_TMA_DIGITS) : 0;
    if (!tma_cut(k, p->units, gate || add ? AFTER_UPTO : HIGHEST, gate ? GATES_MOST : 0, gpu_processors(b->g), &c))
        return false;
    if (add && (c.tiles > GPU_DEFERRED_PARTS || k->part[0].rows % 4)) return false;
    p->height = (int)c.height, p->cluster = (int)c.cluster, p->blocks = (int)(c.tiles * c.cluster);
    share_memory(p);
    for (int i = 0, tiles = 0; i < GPU_PARTS && k->part[i].w; i++) {
        gpu_skinny_part *t = &p->part[i];
        *t = k->part[i];
        i64 height = t->up ? c.height / 2 : c.height;
        t->tiles = tiles += (int)ceil_div(t->rows, height);
        map_of(b, &p->map[i], t->w, t->rows, k->w_stride, k->cols, height);
        if (t->up) map_of(b, &p->up_map[i], t->up, t->rows, k->w_stride, k->cols, height);
    }
    map_of(b, &p->x_map, k->x, k->n, k->x_stride, k->cols, GPU_SKINNY);
    if (gate) g.gate = gate->gate, g.digits = gate->digits;
    bool low = c.height <= SPLIT_UPTO;
    const gpu_kernel *kernel = gate                     ? low ? b->skinny_tma_gate_64 : b->skinny_tma_gate_144
                               : add                    ? low ? b->skinny_tma_residual_64 : b->skinny_tma_residual_144
                               : low                    ? b->skinny_tma_64
                               : c.height <= AFTER_UPTO ? b->skinny_tma_144
                                                        : b->skinny_tma_256;
    gpu_launch_cluster(b->g, kernel, (u32)c.cluster, (u32)(p->blocks + ceil_div(gates, c.cluster) * c.cluster), 1, 1,
                       SKINNY_TMA_THREADS, skinny_tma_shared(p), &g);
    if (parts) *parts = c.tiles;
    return true;
}

status gpu_skinny_tma_init(gpu_backend *b, err *e) {
    gpu_kernel *const all[] = {b->skinny_tma_64,          b->skinny_tma_144,          b->skinny_tma_256,
                               b->skinny_tma_residual_64, b->skinny_tma_residual_144, b->skinny_tma_gate_64,
                               b->skinny_tma_gate_144};
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < COUNT_OF(all); i++) st = gpu_shared(b->g, all[i], SKINNY_TMA_SHARED, e);
    return st;
}
