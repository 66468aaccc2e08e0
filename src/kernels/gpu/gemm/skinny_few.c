/* kernels/gpu/gemm/skinny_few.c: products of up to 4 rows of x (skinny_few.cu): which calls it takes. */
#include "kernels/gpu/backend.h"
#include "kernels/gpu/gemm/gemm_select.h"

enum {
    UNIT = 64,
    BOX = 8192, /* bytes */
    /* Of shared memory: more than half of a multiprocessor's, and what leaves room for a block of the kernel behind,
     * whose weights then come while this one still runs: one sequence 3.31 ms a step, with 16 KB more 3.39. */
    SHARED_ALONE = 117 * 1024,
    SHARED_MOST = 122 * 1024,
    STAGES_LEAST = 7 /* below, less is under way than the memory brings until a box is there */
};

bool gpu_run_skinny_few(const gpu_backend *b, const gpu_skinny_args *k, i64 *tiles) {
    i64 of[GPU_PARTS], processors = gpu_processors(b->g);
    int parts = 0;
    for (; parts < GPU_PARTS && k->part[parts].w; parts++) of[parts] = k->part[parts].rows;
    const i64 rows = gemm_few_rows(of, parts, processors), pitch = k->cols * 2 + 16,
              stages = min_i64((SHARED_MOST - SKINNY_FEW_STATE - k->n * pitch) / BOX, SKINNY_FEW_STAGES);
    gpu_skinny_few_args f = {.x = k->x,
                             .n = k->n,
                             .cols = k->cols,
                             .x_stride = k->x_stride,
                             .boxes = (int)(k->cols * rows * 2 / BOX),
                             .x_pitch = (int)pitch,
                             .deferred = k->deferred,
                             .after = k->after};
    if (b->form != ROWS_ANY || k->n > SKINNY_FEW_ROWS || !rows || k->cols % (BOX / (rows * 2))) return false;
    if (k->w_stride % 8 || k->x_stride % 8 || stages < STAGES_LEAST) return false;
    for (int i = 0; i < parts; i++)
        if (k->part[i].up || !k->part[i].rows) return false;
    f.stages = (int)min_i64(stages, f.boxes);
    f.state = (int)gpu_round((u64)(f.stages * BOX + k->n * pitch));
    *tiles = gemm_tiles_of(of, parts, rows);
    /* Where nearly all multiprocessors have a tile none may have two, while others have none. */
    const i64 least = *tiles * 16 > processors * 15 ? SHARED_ALONE : 0;
    for (int i = 0, all = 0; i < parts; i++) {
        f.part[i] = k->part[i];
        f.part[i].tiles = all += (int)ceil_div(k->part[i].rows, rows);
        gpu_tensor(b->g, &f.map[i], k->part[i].w, (const u64[3]){UNIT, (u64)k->part[i].rows, (u64)(k->cols / UNIT)},
                   (const u64[2]){(u64)k->w_stride * 2, UNIT * 2}, (const u32[3]){UNIT, (u32)rows, (u32)(64 / rows)});
    }
    const gpu_kernel *const kernels[2][3] = {
        {b->skinny_few_16, b->skinny_few_32, b->skinny_few_64},
        {b->skinny_few_residual_16, b->skinny_few_residual_32, b->skinny_few_residual_64}};
    gpu_launch(b->g,
               kernels[k->after.x != NULL][rows == 16   ? 0
                                           : rows == 32 ? 1
                                                        : 2],
               (u32)*tiles, 1, 1, SKINNY_FEW_THREADS, (u32)max_i64(f.state + SKINNY_FEW_STATE, least), &f);
    return true;
}

status gpu_skinny_few_init(gpu_backend *b, err *e) {
    gpu_kernel *const all[] = {b->skinny_few_16,          b->skinny_few_32,          b->skinny_few_64,
                               b->skinny_few_residual_16, b->skinny_few_residual_32, b->skinny_few_residual_64};
    status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < COUNT_OF(all); i++) st = gpu_shared(b->g, all[i], SHARED_MOST + 1024, e);
    return st;
}
