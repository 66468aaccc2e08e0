/* kernels/cpu/fp8_tmpl.h: products with FP8 weights where VDPBF16PS is present.
 *
 * An e4m3 value is exactly a bf16 value, so rows are widened to bf16 without their scales; the products of a
 * block of 128 columns are summed first and then added, times the block's scale, to the result. One
 * accumulator per result and level, blocks in order, whatever the tile. A row with one scale has it for each block. */

/* 32 values: the 7 bits of exponent and mantissa moved into place, subnormals and NaN from tables. */
INLINE __m512i fp8_to_bf16(__m256i v) {
    const __m512i tiny =
        _mm512_castsi128_si512(_mm_set_epi16(0x3c60, 0x3c40, 0x3c20, 0x3c00, 0x3bc0, 0x3b80, 0x3b00, 0)); /* j / 512 */
    __m512i w = _mm512_cvtepu8_epi16(v), mag = _mm512_and_si512(w, _mm512_set1_epi16(0x7f));
    __m512i r = _mm512_add_epi16(_mm512_slli_epi16(mag, 4), _mm512_set1_epi16(120 << 7));
    r = _mm512_mask_permutexvar_epi16(r, _mm512_cmplt_epu16_mask(mag, _mm512_set1_epi16(8)), mag, tiny);
    r = _mm512_mask_mov_epi16(r, _mm512_cmpeq_epi16_mask(mag, _mm512_set1_epi16(0x7f)), _mm512_set1_epi16(0x7fc0));
    return _mm512_or_si512(r, _mm512_slli_epi16(_mm512_sub_epi16(w, mag), 8));
}

/* Rows [row, row + n) as bf16 [n, stride], without scales; what is past the last column is zero. */
static void fp8_widen(const weight_view *w, i64 row, i64 n, bf16 *out, i64 stride) {
    for (i64 r = 0; r < n; r++) {
        const u8 *q = (const u8 *)w->data + (row + r) * w->cols;
        for (i64 c = 0; c < w->cols; c += KSTEP) {
            i64 left = w->cols - c;
            __mmask32 have = left >= KSTEP ? ~(__mmask32)0 : ((__mmask32)1 << left) - 1;
            _mm512_storeu_si512(out + r * stride + c, fp8_to_bf16(_mm256_maskz_loadu_epi8(have, q + c)));
        }
    }
}

/* M rows of x against N widened rows; scale[j] points to the block scales of row j, `next` apart. */
INLINE void fp8_tile(const bf16 *const *x, const bf16 *w, i64 ws, const f32 *const *scale, i64 next, i64 k, f32 *y,
                     i64 ys, const int M, const int N) {
    vf acc[2][4];
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) acc[i][j] = vf_zero();
    for (i64 b = 0; b * FP8_BLOCK < k; b++) {
        vf part[2][4];
        i64 c = b * FP8_BLOCK, end = min_i64(k, c + FP8_BLOCK);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) part[i][j] = vf_zero();
        for (; c < end; c += KSTEP) {
            vb wv[4];
            for (int j = 0; j < N; j++) wv[j] = vb_load(w + j * ws + c);
            for (int i = 0; i < M; i++) {
                vb xv = c + KSTEP <= end ? vb_load(x[i] + c) : vb_load_n(x[i] + c, end - c);
                for (int j = 0; j < N; j++) part[i][j] = vb_dot(part[i][j], xv, wv[j]);
            }
        }
        for (int j = 0; j < N; j++)
            for (int i = 0; i < M; i++) acc[i][j] = vf_fma(part[i][j], vf_set(scale[j][b * next]), acc[i][j]);
    }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) y[i * ys + j] = vf_sum(acc[i][j]);
}

/* y[nx, ys] = rows of x times weight rows [row, row + nw); buf holds 2 * CPU_EXPAND_MAX bf16. */
static void fp8_product(const weight_view *w, i64 row, i64 nw, const bf16 *const *x, i64 nx, f32 *y, i64 ys,
                        bf16 *buf) {
    i64 stride = ceil_div(w->cols, KSTEP) * KSTEP, blocks = ceil_div(w->cols, FP8_BLOCK);
    const bool block = w->format == WF_FP8_BLOCK;
    i64 step = nw >= 4 ? 4 : 1; /* rows widened at a time stay in the first- or second-level cache */
    for (i64 j = 0; j < nw; j += step) {
        if (j + step > nw) step = 1;
        const f32 *scale[4];
        for (i64 r = 0; r < step; r++)
            scale[r] = (const f32 *)w->scale + (block ? (row + j + r) / FP8_BLOCK * blocks : row + j + r);
        i64 i = 0;
        if (step == 4 && 4 * stride <= 2 * CPU_EXPAND_MAX) {
            fp8_widen(w, row + j, 4, buf, stride);
            for (; i + 2 <= nx; i += 2) fp8_tile(x + i, buf, stride, scale, block, w->cols, y + i * ys + j, ys, 2, 4);
            if (i < nx) fp8_tile(x + i, buf, stride, scale, block, w->cols, y + i * ys + j, ys, 1, 4);
            continue;
        }
        for (i64 r = 0; r < step; r++) {
            fp8_widen(w, row + j + r, 1, buf, stride);
            for (i = 0; i < nx; i++)
                fp8_tile(x + i, buf, stride, scale + r, block, w->cols, y + i * ys + j + r, ys, 1, 1);
        }
    }
}
