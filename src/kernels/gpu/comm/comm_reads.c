/* kernels/gpu/comm/comm_reads.c: exchanges between GPUs in which each reads where the others say (read_peers.cu). */
#include "kernels/gpu/comm/comm_reads.h"
#include "kernels/gpu/backend.h"

static gpu_read_blocks_args nothing_to_read(const comm *c) {
    const gpu_read_blocks_args k = {.e = *gpu_comm_end(c)};
    return k;
}

static void read_blocks(comm *c, const gpu_read_blocks_args *k) {
    const gpu_backend *b = gpu_of(gpu_comm_ops(c));
    gpu_launch(b->g, b->read_blocks, COMM_BLOCKS, 1, 1, GPU_THREADS, 0, k);
}

void gpu_comm_gather_reads(comm *c, const void *mine, void *all, u64 bytes) {
    gpu_read_blocks_args k = nothing_to_read(c);
    for (i64 r = 0; r < c->ranks; r++) {
        k.show[r] = mine;
        k.to[r] = (u8 *)all + (u64)r * bytes;
        k.bytes[r] = (i64)bytes;
    }
    read_blocks(c, &k);
}

void gpu_comm_all_to_all(comm *c, const void *out, const i64 *out_counts, void *in, const i64 *in_counts, u64 size) {
    gpu_read_blocks_args k = nothing_to_read(c);
    for (i64 r = 0, sent = 0, taken = 0; r < c->ranks; r++) {
        k.show[r] = (const u8 *)out + (u64)sent * size;
        k.to[r] = (u8 *)in + (u64)taken * size;
        k.bytes[r] = in_counts[r] * (i64)size;
        sent += out_counts[r], taken += in_counts[r];
    }
    read_blocks(c, &k);
}

void gpu_comm_broadcast(comm *c, void *x, u64 bytes, i64 root) {
    gpu_read_blocks_args k = nothing_to_read(c);
    for (i64 r = 0; r < c->ranks; r++) k.show[r] = x;
    k.to[root] = x;
    k.bytes[root] = root == c->rank ? 0 : (i64)bytes;
    read_blocks(c, &k);
}

void gpu_comm_barrier(comm *c) {
    const gpu_read_blocks_args k = nothing_to_read(c);
    read_blocks(c, &k);
}

void gpu_comm_reduce_scatter(comm *c, const void *x, void *mine, i64 n, dtype type) {
    const gpu_backend *b = gpu_of(gpu_comm_ops(c));
    gpu_reduce_scatter_args k = {.e = *gpu_comm_end(c), .x = x, .out = mine, .n = n, .type = gpu_type(type)};
    gpu_launch(b->g, b->reduce_scatter, COMM_BLOCKS, 1, 1, GPU_THREADS, 0, &k);
}
