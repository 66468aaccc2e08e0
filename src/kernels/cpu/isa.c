#include "base/log.h"
#include "kernels/ops.h"
#include <cpuid.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the system saves on a context switch (Intel SDM volume 1, chapter 13): bits 1, 2 are xmm and ymm; 5,
 * 6, 7 the mask registers and zmm; 17 and 18 AMX's tiles. A processor flag without these would fault. */
static u32 saved_state(void) {
    u32 lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
}

/* Of leaf 7's edx; <cpuid.h> has them by different names. */
enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 };

/* Linux saves a thread's tiles (8 KiB) only for processes that asked (arch_prctl, since Linux 5.16); for good. */
static bool tiles_allowed(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    if (!syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)) return true;
    log_once("cpu-amx", "the processor has AMX, but the system does not let programs use it (arch_prctl: %s)",
             strerror(errno));
    return false;
}

u32 cpu_isa(void) {
    u32 a, b, c, d, isa = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
    bool fma = (c & bit_FMA) && (c & bit_AVX) && (c & bit_F16C);
    u32 saved = saved_state();
    bool ymm = (saved & 0x06) == 0x06, zmm = (saved & 0xe6) == 0xe6, tiles = (saved & 0x60000) == 0x60000;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    u32 need = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    if (ymm && fma && (b & bit_AVX2)) isa |= ISA_AVX2;
    if ((isa & ISA_AVX2) && zmm && (b & need) == need) isa |= ISA_AVX512;
    if ((isa & ISA_AVX512) && (c & bit_AVX512VNNI)) isa |= ISA_VNNI;
    const bool amx = tiles && (d & AMX_TILE), amx_bf16 = amx && (d & AMX_BF16), amx_int8 = amx && (d & AMX_INT8);
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d)) return isa;
    if ((isa & ISA_AVX2) && (a & bit_AVXVNNI)) isa |= ISA_AVXVNNI;
    if ((isa & ISA_AVX512) && (a & bit_AVX512BF16)) isa |= ISA_BF16;
    if ((isa & ISA_BF16) && (amx_bf16 || amx_int8) && tiles_allowed())
        isa |= (amx_bf16 ? ISA_AMX : 0u) | (amx_int8 ? ISA_AMX_INT8 : 0u);
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
              {"noamx", ISA_ALL & ~(ISA_AMX | ISA_AMX_INT8)},
              {"all", ISA_ALL}};

status cpu_isa_parse(const char *mask, u32 *out, err *e) {
    for (size_t i = 0; i < COUNT_OF(levels); i++)
        if (!strcmp(mask, levels[i].name)) return *out = levels[i].mask, ST_OK;
    return err_set(e, ST_INPUT, "--cpu-mask is \"%s\", not one of none, avx2, avxvnni, avx512, vnni, bf16, noamx, all",
                   mask);
}
