/* mpi/plugin.c: moonlet-mpi.so, the functions of device/mpi_plugin.h by an MPI library. */
#include "device/mpi_plugin.h"
#include <mpi.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(mpi_message), "an MPI_Request fits a message");

static MPI_Comm channels[MPI_CHANNELS];
static char reason[MPI_MAX_ERROR_STRING];

static int result(int code) {
    int n = 0;
    if (code == MPI_SUCCESS) return 0;
    if (MPI_Error_string(code, reason, &n) != MPI_SUCCESS) strcpy(reason, "an error without a text");
    return -1;
}

static int plugin_start(i64 *process, i64 *processes) {
    int given, there = 0, rank, size;
    MPI_Initialized(&there);
    int code = there ? MPI_SUCCESS : MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given);
    if (code == MPI_SUCCESS && !there && given < MPI_THREAD_SERIALIZED)
        return strcpy(reason, "this MPI takes calls from one thread alone"), -1;
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) code = MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (code == MPI_SUCCESS) code = MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int c = 0; code == MPI_SUCCESS && c < MPI_CHANNELS; c++) {
        code = MPI_Comm_dup(MPI_COMM_WORLD, &channels[c]);
        if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(channels[c], MPI_ERRORS_RETURN);
    }
    if (code == MPI_SUCCESS) *process = rank, *processes = size;
    return result(code);
}

static const char *plugin_library(void) {
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;
    MPI_Get_library_version(text, &n);
    text[strcspn(text, ",\n")] = 0;
    return text;
}

static const char *plugin_why(void) { return reason; }

static int plugin_send(mpi_channel c, i64 to, i32 tag, const void *data, i64 bytes, mpi_message *m) {
    MPI_Request r;
    int code = MPI_Isend(data, (int)bytes, MPI_BYTE, (int)to, tag, channels[c], &r);
    memcpy(m, &r, sizeof r);
    return result(code);
}

static int plugin_receive(mpi_channel c, i64 from, void *data, i64 bytes, mpi_message *m) {
    MPI_Request r;
    int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, (int)from, MPI_ANY_TAG, channels[c], &r);
    memcpy(m, &r, sizeof r);
    return result(code);
}

static int envelope_of(const MPI_Status *s, mpi_envelope *of) {
    int n = 0;
    int code = MPI_Get_count(s, MPI_BYTE, &n);
    *of = (mpi_envelope){.peer = s->MPI_SOURCE, .tag = s->MPI_TAG, .bytes = n};
    return code;
}

static int plugin_test(mpi_message *m, bool *done, mpi_envelope *of) {
    MPI_Request r;
    MPI_Status s;
    int there = 0;
    memcpy(&r, m, sizeof r);
    int code = MPI_Test(&r, &there, &s);
    memcpy(m, &r, sizeof r);
    *done = there;
    if (code == MPI_SUCCESS && there && of) code = envelope_of(&s, of);
    return result(code);
}

static int plugin_probe(mpi_channel c, bool *there, mpi_envelope *of) {
    MPI_Status s;
    int found = 0;
    int code = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, channels[c], &found, &s);
    *there = found;
    if (code == MPI_SUCCESS && found) code = envelope_of(&s, of);
    return result(code);
}

static int plugin_end(void) {
    for (int c = 0; c < MPI_CHANNELS; c++) MPI_Comm_free(&channels[c]);
    return result(MPI_Finalize());
}

static void plugin_abort(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

extern const mpi_plugin moonlet_mpi_plugin; /* MPI_PLUGIN_SYMBOL */
const mpi_plugin moonlet_mpi_plugin = {.abi = MPI_PLUGIN_ABI,
                                       .start = plugin_start,
                                       .library = plugin_library,
                                       .why = plugin_why,
                                       .send = plugin_send,
                                       .receive = plugin_receive,
                                       .test = plugin_test,
                                       .probe = plugin_probe,
                                       .end = plugin_end,
                                       .abort = plugin_abort};
