/* cmd/profile/timeline.h: a step's launches one after the other, as the GPU's clock saw them: what each adds to the
 * step, and for which operation; as a table and as a picture. */
#ifndef CMD_PROFILE_TIMELINE_H
#define CMD_PROFILE_TIMELINE_H
#include "cmd/lib/cupti.h"
#include "device/gpu.h"
#include <stdio.h>

typedef struct {
    const char *kernel, *op; /* op: NULL, unknown */
    f64 from, to;            /* us behind the first launch's begin */
    f64 overlap;             /* us: how long before the end of all before it it began; negative: a gap */
    f64 adds;                /* us by which it moved the end of all so far; their sum is the step */
    f64 bytes, flops;        /* of its operation's whole call, with that call's first launch; else 0 */
    bool first;              /* of its call */
    i32 grid[3], cluster;
} timeline_launch;

typedef struct {
    char title[96];       /* "decode, 4 sequences, context 8193" */
    timeline_launch *all; /* [n], by their beginnings; end with timeline_free() */
    i64 n;
    f64 us;            /* from the first begin to the last end */
    f64 bytes;         /* of all operations; 0: unknown */
    char strange[144]; /* behind timeline_name(): where the two differ first */
} timeline;

/* seen [n]: of one GPU, by their beginnings. ST_INPUT: there is none. */
status timeline_make(timeline *t, const char *title, const kernel_launch *seen, i64 n, err *e);
void timeline_free(timeline *t);
/* Gives the launches their operations. of [n]: the same step's, in their order, from a trace (device/gpu.h), in which a
 * library's kernels (`library`) have its name. False, and nothing has a name, if the two are not the same kernels. */
bool timeline_name(timeline *t, const gpu_time *of, i64 n, const char *library);

/* One kernel for one operation, as many blocks of it? */
bool timeline_same_kind(const timeline_launch *a, const timeline_launch *b);
/* Launches of one kernel for one operation, the sum of what they add. */
typedef struct {
    const timeline_launch *first;
    i64 launches;
    f64 lasts, overlap, adds; /* us, sums */
} timeline_kind;
enum { TIMELINE_KINDS = 128 };
/* The most costly first; how many. Those beyond TIMELINE_KINDS are left out. */
int timeline_kinds(const timeline *t, timeline_kind out[TIMELINE_KINDS]);
/* The launches [*from, *to) of one layer in the middle: from behind one launch of the kind that adds most to the next
 * one, that included. All of them if no kind comes three times. */
void timeline_layer(const timeline *t, i64 *from, i64 *to);

void timeline_print(FILE *f, const timeline *t);
/* All of them as one SVG, one below the other, each with the layer by multiprocessor that blocks [n] has, if it has
 * one. chip: the GPU's name; read: bytes a second that its memory was measured to give, 0: unknown. */
struct block_timeline;
status timeline_chart(FILE *f, const timeline *t, const struct block_timeline *blocks, int n, const char *chip,
                      f64 read, err *e);

#endif
