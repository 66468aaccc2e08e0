/* tests/emulator/products.cc: the products of a warp (mma, ldmatrix) and of four (wgmma): the first lane that comes
 * back from the meeting works it out for all. */
#include "blocks.h"

static float low(unsigned two) { return __uint_as_float(two << 16); }
static float high(unsigned two) { return __uint_as_float(two & 0xffff0000u); }
/* Lanes give their operands (a[4], b[2] and c[4], those that are registers) of a product; the first one that comes back
 * gets those of all lanes, to work with, the others NULL. */
static const operands *give_operands(const unsigned *a, const unsigned *b, const float *c, tile_values **values) {
    const int me = blk->running;
    const unsigned now = ++blk->products[me];
    operands *mine = &blk->given_operands[now % 2][me];
    if (a) memcpy(mine->a, a, sizeof mine->a);
    if (b) memcpy(mine->b, b, sizeof mine->b);
    if (c) memcpy(mine->c, c, sizeof mine->c);
    emu_warp_barrier();
    *values = &blk->values[me / LANES];
    const bool first = (*values)->product != now;
    (*values)->product = now;
    return first ? blk->given_operands[now % 2] + me / LANES * LANES : nullptr;
}
/* v[k][row] of the 16 x 16 operand in registers a[0..3] of the lanes. */
template <bool HALF> static void decode_a(const operands *lanes, float v[16][16]) {
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 16; k += 2) {
                unsigned two = lanes[4 * g + k % 8 / 2].a[i + k / 8 * 2];
                v[k][g + 8 * i] = HALF ? low_half(two) : low(two);
                v[k + 1][g + 8 * i] = HALF ? high_half(two) : high(two);
            }
}
/* Into v->c: c + a b of all lanes, whose c[i] is row g + 8 (i / 2), column 2t + i % 2. */
template <bool HALF> static void multiply(const operands *lanes, tile_values *v) {
    float b[16][8];
    decode_a<HALF>(lanes, v->a);
    for (int col = 0; col < 8; col++)
        for (int k = 0; k < 16; k += 2) {
            unsigned two = lanes[4 * col + k % 8 / 2].b[k / 8];
            b[k][col] = HALF ? low_half(two) : low(two);
            b[k + 1][col] = HALF ? high_half(two) : high(two);
        }
    for (int row = 0; row < 16; row++) {
        float sum[8];
        for (int col = 0; col < 8; col++) sum[col] = lanes[row % 8 * 4 + col / 2].c[row / 8 * 2 + col % 2];
        for (int k = 0; k < 16; k++)
            for (int col = 0; col < 8; col++) sum[col] += v->a[k][row] * b[k][col];
        memcpy(v->c[row], sum, sizeof sum);
    }
}
template <bool HALF> static void mma(float c[4], const unsigned a[4], const unsigned b[2]) {
    const int lane = blk->running % LANES, g = lane / 4, t = lane % 4;
    tile_values *v;
    if (const operands *lanes = give_operands(a, b, c, &v)) multiply<HALF>(lanes, v);
    for (int i = 0; i < 4; i++) c[i] = v->c[g + i / 2 * 8][2 * t + i % 2];
}
/* v[k][row] of the 16 x 32 operand of bytes in registers a[0..3] of the lanes; u: unsigned ones. */
static void decode_bytes_a(const operands *lanes, bool u, int v[32][16]) {
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 32; k++) {
                unsigned byte = lanes[4 * g + k % 16 / 4].a[i + k / 16 * 2] >> k % 4 * 8 & 255;
                v[k][g + 8 * i] = u ? (int)byte : (signed char)byte;
            }
}
static void multiply_bytes(const operands *lanes, tile_values *v) {
    int b[32][8];
    decode_bytes_a(lanes, false, v->bytes_a);
    for (int col = 0; col < 8; col++)
        for (int k = 0; k < 32; k++) b[k][col] = (signed char)(lanes[4 * col + k % 16 / 4].b[k / 16] >> k % 4 * 8);
    for (int row = 0; row < 16; row++) {
        int sum[8] = {0};
        for (int k = 0; k < 32; k++)
            for (int col = 0; col < 8; col++) sum[col] += v->bytes_a[k][row] * b[k][col];
        memcpy(v->bytes_c[row], sum, sizeof sum);
    }
}
void mma_s8(int c[4], const unsigned a[4], unsigned b0, unsigned b1) {
    const int lane = blk->running % LANES, g = lane / 4, t = lane % 4;
    const unsigned b[2] = {b0, b1};
    tile_values *v;
    if (const operands *lanes = give_operands(a, b, nullptr, &v)) multiply_bytes(lanes, v);
    for (int i = 0; i < 4; i++) c[i] = v->bytes_c[g + i / 2 * 8][2 * t + i % 2];
}
void mma_bf16(float c[4], const unsigned a[4], const unsigned b[2]) { mma<false>(c, a, b); }
void mma_half(float c[4], const unsigned a[4], const unsigned b[2]) { mma<true>(c, a, b); }
static const char **give_rows(const void *p) {
    int me = blk->running, turn = (int)(blk->products[me]++ % 2);
    if ((size_t)p % 16) broken("a row of a matrix in shared memory is not aligned to 16 bytes");
    blk->rows[turn][me] = (const char *)p;
    emu_warp_barrier();
    return blk->rows[turn] + me / LANES * LANES;
}
void ldmatrix4(unsigned r[4], const void *shared) {
    int lane = blk->running % LANES;
    const char **rows = give_rows(shared);
    for (int i = 0; i < 4; i++) memcpy(&r[i], rows[8 * i + lane / 4] + lane % 4 * 4, 4);
}
void ldmatrix4_t(unsigned r[4], const void *shared) {
    int lane = blk->running % LANES;
    const char **rows = give_rows(shared);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++) memcpy((char *)&r[i] + 2 * k, rows[8 * i + lane % 4 * 2 + k] + lane / 4 * 2, 2);
}

void stmatrix4_t(void *shared, const unsigned r[4]) {
    int lane = blk->running % LANES;
    const char **rows = give_rows(shared);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++)
            memcpy((char *)rows[8 * i + lane % 4 * 2 + k] + lane / 4 * 2, (const char *)&r[i] + 2 * k, 2);
    emu_warp_barrier();
}

unsigned shared_at(const void *p) {
    size_t at = (size_t)((const char *)p - blk->shared);
    if (at >= SHARED) broken("a tile lies outside dynamic shared memory");
    return (unsigned)at;
}
/* The eight values at byte `at`, a multiple of 16, of shared memory, whose 16-byte pieces are swizzled. */
template <bool HALF> static void swizzled_values(const char *shared, unsigned at, float v[8]) {
    unsigned short h[8];
    memcpy(h, shared + (at ^ (at >> 7 & 7) << 4), sizeof h);
    for (int i = 0; i < 8; i++) v[i] = HALF ? low_half(h[i]) : __uint_as_float((unsigned)h[i] << 16);
}
/* A tile that a descriptor names, K-major or (t) not, by eights: of k (row, k .. k + 7), or (t) of rows
 * (row .. row + 7, k). */
struct shared_tile {
    const char *shared;
    unsigned start, lead, stride;
    explicit shared_tile(emu_u64 desc)
        : shared(blk->shared), start((unsigned)(desc & 0x3fff) << 4), lead((unsigned)(desc >> 16 & 0x3fff) << 4),
          stride((unsigned)(desc >> 32 & 0x3fff) << 4) {
        if (desc >> 62 != 1) broken("a descriptor is not of the 128-byte swizzle");
    }
    template <bool HALF> void of_row(int row, int k, float v[8]) const {
        swizzled_values<HALF>(shared, start + row / 8 * stride + row % 8 * 128 + k * 2, v);
    }
    template <bool HALF> void of_k(int row, int k, float v[8]) const {
        swizzled_values<HALF>(shared, start + row / 64 * lead + k / 8 * stride + k % 8 * 128 + row % 64 * 2, v);
    }
};
/* Puts column `col` of n into a row of tile_values.b: lane % 4 = c owns columns 8 j + 2 c and the next, each of which
 * it needs for two rows. */
template <typename number> static void put_column(number *row, int n, int col, number v) {
    number *at = row + col % 8 / 2 * (n / 2) + col / 8 * 4 + col % 2;
    at[0] = at[2] = v;
}
/* Both operands of the warp's rows as numbers. */
template <bool HALF>
static void decode_tiles(int n, int t, const operands *lanes, bool of_lanes, emu_u64 a_desc, emu_u64 b_desc,
                         tile_values *v) {
    const int first = blk->running / LANES % 4 * 16;
    float eight[8];
    if (of_lanes)
        decode_a<HALF>(lanes, v->a);
    else {
        const shared_tile tile(a_desc);
        for (int row = 0; row < 16; row++)
            for (int k = 0; k < 16; k += 8) {
                tile.of_row<HALF>(first + row, k, eight);
                for (int i = 0; i < 8; i++) v->a[k + i][row] = eight[i];
            }
    }
    const shared_tile tile(b_desc);
    if (t)
        for (int k = 0; k < 16; k++)
            for (int col = 0; col < n; col += 8) {
                tile.of_k<HALF>(col, k, eight);
                for (int i = 0; i < 8; i++) put_column(v->b[k], n, col + i, eight[i]);
            }
    else
        for (int col = 0; col < n; col++)
            for (int k = 0; k < 16; k += 8) {
                tile.of_row<HALF>(col, k, eight);
                for (int i = 0; i < 8; i++) put_column(v->b[k + i], n, col, eight[i]);
            }
}
/* d[4 j + 2 i + e] of a lane is row g + 8 i, column 8 j + 2 c + e. WIDTH values of it, whose rows are those of 4
 * alternately, += a b; x [depth, 16], y [depth, B_ROW]. */
template <int N, int WIDTH, typename number>
static void add_columns(number *d, const number (*x)[16], const number (*y)[B_ROW], int depth, int add) {
    typedef number several __attribute__((vector_size(WIDTH * sizeof(number)), aligned(sizeof(number))));
    several *const to = (several *)d, none = {};
    several sum[N];
    for (int e = 0; e < N; e++) sum[e] = add ? to[e] : none;
    for (int k = 0; k < depth; k++) {
        const several *of_y = (const several *)y[k];
        several of_x;
        for (int i = 0; i < WIDTH; i++) of_x[i] = x[k][i / 2 % 2 * 8];
#pragma GCC unroll 4
        for (int e = 0; e < N; e++) sum[e] += of_x * of_y[e];
    }
    for (int e = 0; e < N; e++) to[e] = sum[e];
}
/* d [n / 2] += a b of this lane. */
template <typename number>
static void add_product(number *d, int n, const number (*a)[16], const number (*b)[B_ROW], int depth, int add) {
    const int values = n / 2;
    const number(*x)[16] = (const number(*)[16])(&a[0][blk->running % LANES / 4]);
    const auto y = [&](int at) { return (const number(*)[B_ROW])(&b[0][blk->running % 4 * values + at]); };
    int at = 0;
    for (; at + 32 <= values; at += 32) add_columns<4, 8>(d + at, x, y(at), depth, add);
    for (; at + 8 <= values; at += 8) add_columns<1, 8>(d + at, x, y(at), depth, add);
    for (; at < values; at += 4) add_columns<1, 4>(d + at, x, y(at), depth, add);
}
void emu_wgmma(int n, int t, float *d, const unsigned *a, emu_u64 a_desc, emu_u64 b_desc, int add, bool half) {
    tile_values *v;
    if (const operands *lanes = give_operands(a, nullptr, nullptr, &v))
        (half ? decode_tiles<true> : decode_tiles<false>)(n, t, lanes, a != nullptr, a_desc, b_desc, v);
    add_product(d, n, v->a, v->b, 16, add);
    emu_warp_barrier(); /* shared memory may be overwritten only after all have read it */
}

/* Bytes 2 k and 2 k + 1 of a row of 128 of the K-major tile that a descriptor names. */
static unsigned operand_bytes(emu_u64 desc, int row, int k) {
    unsigned at =
        ((unsigned)(desc & 0x3fff) << 4) + row / 8 * ((unsigned)(desc >> 32 & 0x3fff) << 4) + row % 8 * 128 + k * 2;
    unsigned short two;
    if (desc >> 62 != 1) broken("a descriptor is not of the 128-byte swizzle");
    memcpy(&two, blk->shared + (at ^ (at >> 7 & 7) << 4), 2);
    return two;
}
void emu_wgmma_bytes(int n, int u, int *d, const unsigned *a, emu_u64 b_desc, int add) {
    tile_values *v;
    if (const operands *lanes = give_operands(a, nullptr, nullptr, &v)) {
        decode_bytes_a(lanes, u, v->bytes_a);
        for (int col = 0; col < n; col++)
            for (int k = 0; k < 32; k += 2) { /* two bytes of a row, swizzled as a bf16 is */
                unsigned two = operand_bytes(b_desc, col, k / 2);
                put_column(v->bytes_b[k], n, col, (int)(signed char)two);
                put_column(v->bytes_b[k + 1], n, col, (int)(signed char)(two >> 8));
            }
    }
    add_product(d, n, v->bytes_a, v->bytes_b, 32, add);
    emu_warp_barrier();
}
