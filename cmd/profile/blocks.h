/* cmd/profile/blocks.h: a recorded step by multiprocessor: when each block of each launch began, passed the points that
 * its kernel names, and ended, by the times that kernels write down (device/gpu.h, gpu_stamp). As a table of what the
 * blocks of a kernel do behind the end of the kernels in front, and as a picture. */
#ifndef CMD_PROFILE_BLOCKS_H
#define CMD_PROFILE_BLOCKS_H
#include "base/buf.h"
#include "cmd/profile/chart.h"
#include "runtime/step_timer.h"

typedef struct {
    f64 from, to;          /* us behind the first block's begin */
    f64 mark[BLOCK_MARKS]; /* us, too; 0: never there */
    i32 processor;
} block_run;

typedef struct block_timeline {
    timeline t;     /* its launches, from their first block's begin to their last one's end */
    block_run *all; /* [first[t.n]] */
    i64 *first;     /* [t.n + 1]: of a launch, in t's order */
    f64 *front;     /* [t.n]: the end of all launches in front: what a launch may read is there from then on */
    i64 processors; /* the largest number of one, and one */
    i64 untimed;    /* launches that are not in it: their kernels write nothing, or there was no room */
} block_timeline;

/* A step's launches, in their order. t.n 0: none wrote times. Ends with blocks_free(). */
status blocks_make(block_timeline *b, const char *title, const gpu_stamped *launches, i64 n, err *e);
void blocks_free(block_timeline *b);
/* The shortest of several such decode steps, recorded anew. t.n 0: it is not recorded, or, if `untimed` is not 0, the
 * kernels of this build write no times. */
status blocks_run(block_timeline *b, step_timer *m, const char *title, i64 sequences, i64 rows, i64 pos, err *e);

/* Gives the launches their operations. of [n]: the same step's, in their order, from a trace (device/gpu.h), which may
 * have more: of kernels that write nothing, of libraries, behind what was recorded. False, and nothing has a name, if
 * a launch is not among them. */
bool blocks_name(block_timeline *b, const gpu_time *of, i64 n);

/* For each kind of launch when its blocks begin, pass its points and end, us behind `front`: the mean, and of the first
 * and the last block the mean over launches. */
void blocks_print(FILE *f, const block_timeline *b);

/* Height of the picture of a layer; 0: there is none. */
int blocks_height(const block_timeline *b);
/* A layer in the middle, a line a multiprocessor, at y. d: of the chart around it; its colours are taken. */
void blocks_draw(const chart_band *d, const block_timeline *b, f64 y);

#endif
