/* kernels/gpu/comm/all_reduce_parts.cu: the sum of all ranks' x of many values, in two shots: each rank sums a part of
 * all ranks' values, in their order, and writes the sum to its place in everybody's x. Bytes sent by a rank: twice its
 * values, whatever the number of ranks, where the sum in one shot (all_reduce.cu) sends 2 (ranks - 1) times as many.
 *
 * Pieces are stored as they are and a flag behind them, as in exchange_flags.cuh. Their memory may be used again when
 * an exchange has ended: everybody has said by then that it has read them. So the launches in front of one may store
 * pieces as well, and then nothing is sent here. A sum replaces values in another rank's x that its block of the same
 * number has sent before: that it has is what the flag of the first shot says.
 *
 * Or a rank's part is rows, which it adds to its residual stream and norms; everybody gets the normed rows alone, since
 * nobody else needs that rank's rows of the stream. So each row is normed once, not once a rank. Where sequences have
 * a rank each, a row of what is summed is one rank's alone, or a normed row is wanted by one rank alone: then it goes
 * from there, or to there, and where that is the rank that norms it, nowhere. */
#include "kernels/gpu/comm/exchange_flags.cuh"
#include "kernels/gpu/device/mma_tile.cuh"
#include "kernels/gpu/rows/rows.cuh"

typedef enum { OF_ALL, OF_MAKERS, TO_READERS } norm_way;

enum { AT_ONCE = 4 /* loads under way in a thread: of pieces to send, of ranks to sum */ };

static __device__ inline struct uint4 *pieces_of(const gpu_all_reduce_parts_args &a, int of, int from) {
    return a.pieces[of] + from * a.room;
}

/* This block's pieces of a part, of which `together` are not divided: 1, or a row. */
typedef struct {
    int from, to;
} piece_range;
static __device__ inline piece_range pieces_here(const gpu_all_reduce_parts_args &a, int part, int together) {
    const int units = (int)a.part / together, each = (units + (int)gridDim.x - 1) / (int)gridDim.x * together,
              from = (int)blockIdx.x * each;
    return {from, (int)min64(min64(from + each, a.part), a.n / 8 - part * a.part)};
}

/* Past the first-level cache, which would keep what another rank replaces. wanted(piece): is it sent? */
template <int THREADS, class WANTED>
static __device__ inline void send_part(piece_range here, const uint4 *from, uint4 *to, WANTED wanted) {
#pragma unroll 1 /* the next round's addresses would not fit in registers */
    for (int first = here.from + (int)threadIdx.x; first < here.to; first += AT_ONCE * THREADS) {
        uint4 v[AT_ONCE];
        bool there[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            there[i] = first + i * THREADS < here.to && wanted(first + i * THREADS);
            if (there[i]) v[i] = ld_cg_words4(from + first + i * THREADS);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (there[i]) to[first + i * THREADS] = v[i];
    }
}

/* v: the piece of AHEAD ranks from rank `from` on, who are `room` pieces apart in `sent`, but for this one's `own`. */
template <int AHEAD>
static __device__ inline void load_of_ranks(const gpu_all_reduce_parts_args &a, const uint4 *sent, const uint4 *own,
                                            int from, int piece, uint4 v[AHEAD]) {
#pragma unroll
    for (int r = 0; r < AHEAD; r++)
        if (from + r < a.e.ranks)
            v[r] = ld_cg_words4((from + r == a.e.rank ? own : sent + (from + r) * a.room) + piece);
}
/* They join sum, in the order of the ranks. */
template <int AHEAD>
static __device__ inline void add_of_ranks(int ranks, int from, const uint4 v[AHEAD], float sum[PIECE]) {
#pragma unroll
    for (int r = 0; r < AHEAD; r++) {
        if (from + r >= ranks) continue;
        float w[PIECE];
        unpack(v[r], w);
#pragma unroll
        for (int k = 0; k < PIECE; k++) sum[k] = from + r ? sum[k] + w[k] : w[k];
    }
}

/* The sum of everybody's piece, in the order of the ranks. */
static __device__ inline uint4 sum_of_piece(const gpu_all_reduce_parts_args &a, const uint4 *sent, const uint4 *own,
                                            int piece) {
    float sum[PIECE];
    for (int from = 0; from < a.e.ranks; from += AT_ONCE) {
        uint4 v[AT_ONCE];
        load_of_ranks<AT_ONCE>(a, sent, own, from, piece, v);
        add_of_ranks<AT_ONCE>(a.e.ranks, from, v, sum);
    }
    return pack(sum);
}

template <int THREADS, norm_way WAY>
static __device__ inline void send_parts(const gpu_all_reduce_parts_args &a, const exchange_state &s, int together) {
    for (int i = 1; i < a.e.ranks && !a.sent; i++) { /* everybody begins with another */
        const int r = (a.e.rank + i) % a.e.ranks;
        const uint4 *from = (const uint4 *)a.x + r * a.part;
        uint4 *to = pieces_of(a, r, a.e.rank);
        const piece_range here = pieces_here(a, r, together);
        const int row = r * ((int)a.part / together);
        if (WAY == OF_MAKERS)
            send_part<THREADS>(here, from, to, [&](int p) { return a.maker[row + p / together] == a.e.rank; });
        else
            send_part<THREADS>(here, from, to, [](int) { return true; });
    }
    tell(a.e, a.flags, s, 0);
}

KERNEL_OF(all_reduce_parts, gpu_all_reduce_parts_args, GPU_THREADS, COMM_RESIDENT) {
    __shared__ void *results[GPU_RANKS_MAX]; /* everybody's x */
    exchange_state s;
    if (!exchange_begin(a.e, s)) return;
    tell_place(a.e, s, 0, a.x);
    send_parts<GPU_THREADS, OF_ALL>(a, s, 1);
    ask_place(a.e, s, 0, a.x, results);
    if (!wait_for_all(a.e, a.flags, s, 0)) return;
    const int me = a.e.rank, ranks = a.e.ranks;
    uint4 *const own = (uint4 *)a.x + me * a.part;
    const uint4 *sent = pieces_of(a, me, 0);
    const piece_range here = pieces_here(a, me, 1);
    for (int p = here.from + (int)threadIdx.x; p < here.to; p += GPU_THREADS) {
        const uint4 sum = sum_of_piece(a, sent, own, p);
        own[p] = sum;
        for (int i = 1; i < ranks; i++) ((uint4 *)results[(me + i) % ranks])[me * a.part + p] = sum;
    }
    tell(a.e, a.flags, s, 1);
    if (!wait_for_all(a.e, a.flags, s, 1)) return;
    exchange_end(a.e, s);
}

enum { NORM_PIECES = 2 /* of a thread: rows of up to 8192 values */, NORM_ROWS = 2 /* of a block, at a time */ };
typedef uint4 pieces_of_rows[NORM_ROWS][NORM_PIECES];

/* As mark_row() of rows.cuh, in everybody's marks. */
static __device__ inline void mark_everywhere(const gpu_all_reduce_parts_args &a, gpu_i64 row, float squares, bool mine,
                                              void *const *marks) {
    if (!a.norm.bad || squares - squares == 0.0f) return;
    const bool first = a.norm.bad[row] == 0;
    if (__syncthreads_or(mine) && first && (int)threadIdx.x < a.e.ranks) ((int *)marks[threadIdx.x])[row] = a.norm.mark;
}

/* Where piece p of a thread of row r lies in this rank's part, which has NORM_ROWS rows from piece `first` on; -1: the
 * row, or the block's last row, ends before. */
static __device__ inline int norm_place(const gpu_all_reduce_parts_args &a, int first, int end, int r, int p) {
    const int c = p * GPU_NORM_THREADS + (int)threadIdx.x, at = first + r * a.together + c;
    return c < a.together && at < end ? at : -1;
}

/* The first of NORM_ROWS rows of this rank's part, which are on from piece `first` of it, among all. */
static __device__ inline int own_row_at(const gpu_all_reduce_parts_args &a, int first) {
    return (int)((a.e.rank * a.part + first) / a.together);
}

static __device__ inline uint4 stream_plus(const uint4 &a, const uint4 &b) {
    float v[PIECE], w[PIECE];
    unpack(a, v), unpack(b, w);
#pragma unroll
    for (int k = 0; k < PIECE; k++) v[k] += w[k];
    return pack(v);
}

/* stream: of NORM_ROWS rows of this rank's part, the residual stream and the ranks' sum, rounded before and after they
 * are added; zeros where there is no row. One row's loads are over before the next one's would begin, and take longer
 * to come than to be read: so those of all rows, from AHEAD ranks, are under way together. */
static __device__ inline void sum_own_rows(const gpu_all_reduce_parts_args &a, const uint4 *sent, int first, int end,
                                           pieces_of_rows stream) {
    enum { EACH = NORM_ROWS * NORM_PIECES, AHEAD = 2 /* more have no room in registers */ };
    const uint4 *own = (const uint4 *)a.x + a.e.rank * a.part, *x = (const uint4 *)a.norm.x + a.e.rank * a.part;
    float sums[EACH][PIECE];
#pragma unroll 1
    for (int from = 0; from < a.e.ranks; from += AHEAD) {
        uint4 v[EACH][AHEAD];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int at = norm_place(a, first, end, i / NORM_PIECES, i % NORM_PIECES);
            if (at >= 0) load_of_ranks<AHEAD>(a, sent, own, from, at, v[i]);
            if (at >= 0 && !from) stream[i / NORM_PIECES][i % NORM_PIECES] = x[at];
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) add_of_ranks<AHEAD>(a.e.ranks, from, v[i], sums[i]);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        uint4 &to = stream[i / NORM_PIECES][i % NORM_PIECES];
        to = norm_place(a, first, end, i / NORM_PIECES, i % NORM_PIECES) < 0 ? uint4{0, 0, 0, 0}
                                                                             : stream_plus(to, pack(sums[i]));
    }
}

/* The same where each row is of the rank alone that made it. */
static __device__ inline void take_own_rows(const gpu_all_reduce_parts_args &a, const uint4 *sent, int first, int end,
                                            pieces_of_rows stream) {
    const uint4 *own = (const uint4 *)a.x + a.e.rank * a.part, *x = (const uint4 *)a.norm.x + a.e.rank * a.part;
    pieces_of_rows v = {};
#pragma unroll
    for (int r = 0; r < NORM_ROWS; r++) {
        const int maker = first + r * a.together < end ? a.maker[own_row_at(a, first) + r] : 0;
        const uint4 *made = maker == a.e.rank ? own : sent + maker * a.room;
#pragma unroll
        for (int p = 0; p < NORM_PIECES; p++) {
            const int at = norm_place(a, first, end, r, p);
            stream[r][p] = uint4{0, 0, 0, 0};
            if (at >= 0) v[r][p] = ld_cg_words4(made + at), stream[r][p] = x[at];
        }
    }
#pragma unroll
    for (int i = 0; i < NORM_ROWS * NORM_PIECES; i++) {
        uint4 &to = stream[i / NORM_PIECES][i % NORM_PIECES];
        to = stream_plus(to, v[i / NORM_PIECES][i % NORM_PIECES]);
    }
}

/* The norm of what sum_own_rows() gave, to everybody's rows; TO_READERS: to those of its reader alone. */
template <norm_way WAY>
static __device__ inline void norm_own_row(const gpu_all_reduce_parts_args &a, int first, int end, int r,
                                           const uint4 *stream, float squares, void *const *results,
                                           void *const *marks) {
    const gpu_norm_args &norm = a.norm;
    const gpu_i64 part = a.e.rank * a.part; /* of the launch's rows, in pieces */
    const int row = own_row_at(a, first) + r, reader = WAY == TO_READERS ? a.reader[row] : -1;
    const float scale = rsqrtf(squares / (float)norm.dim + norm.eps);
    bool bad = false;
#pragma unroll
    for (int p = 0; p < NORM_PIECES; p++) {
        const int here = norm_place(a, first, end, r, p);
        const gpu_i64 at = part + here;
        float v[PIECE], w[PIECE];
        if (here < 0) continue;
        row_load_weight(norm.weight, (gpu_i64)(p * GPU_NORM_THREADS + (int)threadIdx.x) * PIECE, true, w);
        ((uint4 *)norm.sum)[at] = stream[p];
        unpack(stream[p], v);
#pragma unroll
        for (int k = 0; k < PIECE; k++) v[k] = v[k] * scale * w[k];
        const uint4 out = pack(v);
        ((uint4 *)norm.out)[at] = out;
        if (WAY == TO_READERS) {
            if (reader != a.e.rank) ((uint4 *)results[reader])[at] = out;
        } else if (!a.own_alone) {
#pragma unroll 1
            for (int i = 1; i < a.e.ranks; i++) ((uint4 *)results[(a.e.rank + i) % a.e.ranks])[at] = out;
#pragma unroll 1
            for (int i = 1; i < a.played && at + i * a.part < a.n / 8; i++) ((uint4 *)norm.out)[at + i * a.part] = out;
        }
        bad |= has_bad(stream[p]);
    }
    mark_everywhere(a, row, squares, bad, marks);
}

/* NORM_ROWS rows of this rank's part, from piece `first` of it on. The sums of squares have the order of rows.cu's
 * norm. */
template <norm_way WAY>
static __device__ inline void norm_own_rows(const gpu_all_reduce_parts_args &a, const uint4 *sent, int first, int end,
                                            void *const *results, void *const *marks) {
    pieces_of_rows stream;
    float squares[NORM_ROWS] = {};
    if (WAY == OF_MAKERS)
        take_own_rows(a, sent, first, end, stream);
    else
        sum_own_rows(a, sent, first, end, stream);
#pragma unroll
    for (int i = 0; i < NORM_ROWS * NORM_PIECES; i++) {
        float v[PIECE];
        unpack(stream[i / NORM_PIECES][i % NORM_PIECES], v);
#pragma unroll
        for (int k = 0; k < PIECE; k++) squares[i / NORM_PIECES] = fmaf(v[k], v[k], squares[i / NORM_PIECES]);
    }
    block_sums_of<GPU_NORM_THREADS / 32>(squares);
#pragma unroll
    for (int r = 0; r < NORM_ROWS; r++)
        if (first + r * a.together < end) norm_own_row<WAY>(a, first, end, r, stream[r], squares[r], results, marks);
}

/* results, marks [GPU_RANKS_MAX] in shared memory: everybody's normed rows and marks. */
template <norm_way WAY>
static __device__ inline void exchange_and_norm(const gpu_all_reduce_parts_args &a, void **results, void **marks) {
    exchange_state s;
    if (!exchange_begin(a.e, s)) return;
    tell_place(a.e, s, 0, a.norm.out);
    if (a.norm.bad) tell_place(a.e, s, COMM_NORM_BLOCKS, a.norm.bad);
    send_parts<GPU_NORM_THREADS, WAY>(a, s, a.together);
    ask_place(a.e, s, 0, a.norm.out, results);
    if (a.norm.bad) ask_place(a.e, s, COMM_NORM_BLOCKS, a.norm.bad, marks);
    if (!wait_for_all(a.e, a.flags, s, 0)) return;
    const uint4 *sent = pieces_of(a, a.e.rank, 0);
    const piece_range here = pieces_here(a, a.e.rank, a.together);
    for (int first = here.from; first < here.to; first += NORM_ROWS * a.together)
        norm_own_rows<WAY>(a, sent, first, here.to, results, marks);
    tell(a.e, a.flags, s, 1);
    if (!wait_for_all(a.e, a.flags, s, 1)) return;
    exchange_end(a.e, s);
}

KERNEL_OF(all_reduce_parts_norm, gpu_all_reduce_parts_args, GPU_NORM_THREADS, 1) {
    __shared__ void *results[GPU_RANKS_MAX], *marks[GPU_RANKS_MAX];
    exchange_and_norm<OF_ALL>(a, results, marks);
}

/* Rows that are their makers' alone, normed, to all. */
KERNEL_OF(take_rows_norm, gpu_all_reduce_parts_args, GPU_NORM_THREADS, 1) {
    __shared__ void *results[GPU_RANKS_MAX], *marks[GPU_RANKS_MAX];
    exchange_and_norm<OF_MAKERS>(a, results, marks);
}

/* Sums whose normed rows are their readers' alone. */
KERNEL_OF(give_rows_norm, gpu_all_reduce_parts_args, GPU_NORM_THREADS, 1) {
    __shared__ void *results[GPU_RANKS_MAX], *marks[GPU_RANKS_MAX];
    exchange_and_norm<TO_READERS>(a, results, marks);
}
