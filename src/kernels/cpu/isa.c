#include "kernels/ops.h"
#include <cpuid.h>
#include <string.h>

/* What the system saves on a context switch (Intel SDM volume 1, chapter 13): bits 1, 2 are xmm and ymm; 5,
 * 6, 7 the mask registers and zmm. A processor flag without these would fault. */
static u32 saved_state(void) {
    u32 lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
}

u32 cpu_isa(void) {
    u32 a, b, c, d, isa = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
    bool fma = (c & bit_FMA) && (c & bit_AVX) && (c & bit_F16C);
    u32 saved = saved_state();
    bool ymm = (saved & 0x06) == 0x06, zmm = (saved & 0xe6) == 0xe6;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    u32 need = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    if (ymm && fma && (b & bit_AVX2)) isa |= ISA_AVX2;
    if ((isa & ISA_AVX2) && zmm && (b & need) == need) isa |= ISA_AVX512;
    if ((isa & ISA_AVX512) && (c & bit_AVX512VNNI)) isa |= ISA_VNNI;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d)) return isa;
    if ((isa & ISA_AVX2) && (a & bit_AVXVNNI)) isa |= ISA_AVXVNNI;
    if ((isa & ISA_AVX512) && (a & bit_AVX512BF16)) isa |= ISA_BF16;
    return isa;
}

static const struct {
    const char *name;
    u32 mask;
} levels[] = {{"none", 0},
              {"avx2", ISA_AVX2},
              {"avxvnni", ISA_AVX2 | ISA_AVXVNNI},
              {"avx512", ISA_AVX2 | ISA_AVX512},
              {"vnni", ISA_AVX2 | ISA_AVX512 | ISA_VNNI},
              {"bf16", ISA_AVX2 | ISA_AVX512 | ISA_BF16},
              {"all", ISA_ALL}};

status cpu_isa_parse(const char *mask, u32 *out, err *e) {
    for (size_t i = 0; i < COUNT_OF(levels); i++)
        if (!strcmp(mask, levels[i].name)) return *out = levels[i].mask, ST_OK;
    return err_set(e, ST_INPUT, "--cpu-mask is \"%s\", not one of none, avx2, avxvnni, avx512, vnni, bf16, all", mask);
}
