/* device/gpu_stamps.c: when each block of a recording ran, as its kernels write it down. */
#include "device/gpu_internal.h"
#include <stdlib.h>

static void end_stamps(gpu *g) {
    gpu_stamps_state *s = &g->stamps;
    if (s->room) g->dev.release(&g->dev, s->room); /* else the device may not be open yet */
    free(s->launches);
    *s = (gpu_stamps_state){0};
}

status gpu_stamp(gpu *g, i64 blocks, i64 launches, err *e) {
    gpu_stamps_state *s = &g->stamps;
    void *room;
    end_stamps(g);
    if (!blocks) return ST_OK;
    status st = g->dev.alloc(&g->dev, &room, (u64)blocks * sizeof *s->room, "the times of blocks", e);
    if (st != ST_OK) return st;
    s->room = room;
    s->launches = calloc((size_t)launches, sizeof *s->launches);
    if (!s->launches) {
        end_stamps(g);
        return err_nomem(e, "a recording's launches", (u64)launches * sizeof *s->launches);
    }
    s->blocks_most = blocks, s->launches_most = launches;
    return ST_OK;
}

void gpu_stamp_recording(gpu *g, bool begins) {
    gpu_stamps_state *s = &g->stamps;
    s->recording = begins && s->room;
    if (s->recording) s->n_blocks = s->n_launches = s->missed = 0;
}

block_times *gpu_stamp_launch(gpu *g, const gpu_kernel *k, const u32 grid[3]) {
    gpu_stamps_state *s = &g->stamps;
    const i64 n = (i64)grid[0] * grid[1] * grid[2];
    if (!s->recording) return NULL;
    if (n > s->blocks_most - s->n_blocks || s->n_launches == s->launches_most) {
        s->missed++;
        return NULL;
    }
    block_times *at = s->room + s->n_blocks;
    s->launches[s->n_launches++] =
        (gpu_stamped){.kernel = k->name, .grid = {grid[0], grid[1], grid[2]}, .n = n, .first = s->n_blocks};
    s->n_blocks += n;
    return at;
}

status gpu_stamps(gpu *g, gpu_stamped_fn fn, void *ud, i64 *missed, err *e) {
    const gpu_stamps_state *s = &g->stamps;
    block_times *all = malloc((size_t)s->n_blocks * sizeof *all + 1);
    if (!all) return err_nomem(e, "the times of blocks", (u64)s->n_blocks * sizeof *all);
    g->dev.read(&g->dev, all, s->room, (u64)s->n_blocks * sizeof *all);
    status st = g->dev.finish(&g->dev, e);
    for (i64 i = 0; st == ST_OK && i < s->n_launches; i++) {
        gpu_stamped l = s->launches[i];
        l.blocks = all + l.first;
        fn(ud, &l);
    }
    *missed = s->missed;
    free(all);
    return st;
}
