/* device/mpi_plugin.h: what moonlet-mpi.so (../../mpi/plugin.c) gives to the program: messages between the processes
 * that mpirun has started. It is built with the distribution's MPI and loaded where --nnodes asks for it, so that the
 * program itself needs none.
 *
 * One thread at a time calls. Functions return 0; else why() says what MPI did not like. */
#ifndef DEVICE_MPI_PLUGIN_H
#define DEVICE_MPI_PLUGIN_H
#include "base/types.h"

enum { MPI_PLUGIN_ABI = 2 };

/* Messages of one channel never meet those of another: what ranks of one stage exchange, what stages hand on, what a
 * step's results are, what process 0 tells, faults. */
typedef enum { MPI_DATA, MPI_STAGES, MPI_RESULTS, MPI_CONTROL, MPI_FAULTS, MPI_CHANNELS } mpi_channel;

/* A message under way: MPI's own handle, of whatever type it is there. */
typedef struct {
    u64 handle[2];
} mpi_message;

typedef struct {
    i64 peer; /* who sent it */
    i32 tag;
    i64 bytes;
} mpi_envelope;

enum { MPI_TAG_MAX = 32767, MPI_BYTES_MAX = 1 << 30 /* of one message; `int` counts them */ };

typedef struct {
    int abi;
    /* This process's number, and how many there are. */
    int (*start)(i64 *process, i64 *processes);
    const char *(*library)(void); /* "Open MPI v4.1.4" */
    const char *(*why)(void);
    /* The data must stay until test() has said that it is done. */
    int (*send)(mpi_channel c, i64 to, i32 tag, const void *data, i64 bytes, mpi_message *m);
    int (*receive)(mpi_channel c, i64 from, void *data, i64 bytes, mpi_message *m); /* with any tag, `bytes` at most */
    int (*test)(mpi_message *m, bool *done, mpi_envelope *of);                      /* of: of one that was received */
    int (*probe)(mpi_channel c, bool *there, mpi_envelope *of);                     /* of the next one from anybody */
    int (*end)(void);        /* every process calls; waits for all */
    void (*abort)(int code); /* ends all of them at once, this one among them */
} mpi_plugin;

#define MPI_PLUGIN_SYMBOL "moonlet_mpi_plugin"

#endif
