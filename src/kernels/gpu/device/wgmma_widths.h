/* kernels/gpu/device/wgmma_widths.h: by tools/make_wgmma_widths.py: for wgmma's N columns, of which a thread has N / 2
 * sums, operands 0 .. N/2 - 1 of the asm statement.
 * WGMMA_LIST_N: their places in the instruction. WGMMA_SUMS_N(S): S(0), .. of the sums. WGMMA_AT_N: the numbers of the
 * seven operands behind them. */
/* clang-format off */
#define WGMMA_WIDTHS(X) \
    X(8) X(16) X(24) X(32) X(40) X(48) X(56) X(64) \
    X(72) X(80) X(88) X(96) X(104) X(112) X(120) X(128) \
    X(136) X(144) X(152) X(160) X(168) X(176) X(184) X(192) \
    X(200) X(208) X(216) X(224) X(232) X(240) X(248) X(256)
#define WGMMA_LIST_8 "%0, %1, %2, %3"
#define WGMMA_SUMS_8(S) S(0), S(1), S(2), S(3)
#define WGMMA_AT_8 4, 5, 6, 7, 8, 9, 10
#define WGMMA_LIST_16 WGMMA_LIST_8 ", %4, %5, %6, %7"
#define WGMMA_SUMS_16(S) WGMMA_SUMS_8(S), S(4), S(5), S(6), S(7)
#define WGMMA_AT_16 8, 9, 10, 11, 12, 13, 14
#define WGMMA_LIST_24 WGMMA_LIST_16 ", %8, %9, %10, %11"
#define WGMMA_SUMS_24(S) WGMMA_SUMS_16(S), S(8), S(9), S(10), S(11)
#define WGMMA_AT_24 12, 13, 14, 15, 16, 17, 18
#define WGMMA_LIST_32 WGMMA_LIST_24 ", %12, %13, %14, %15"
#define WGMMA_SUMS_32(S) WGMMA_SUMS_24(S), S(12), S(13), S(14), S(15)
#define WGMMA_AT_32 16, 17, 18, 19, 20, 21, 22
#define WGMMA_LIST_40 WGMMA_LIST_32 ", %16, %17, %18, %19"
#define WGMMA_SUMS_40(S) WGMMA_SUMS_32(S), S(16), S(17), S(18), S(19)
#define WGMMA_AT_40 20, 21, 22, 23, 24, 25, 26
#define WGMMA_LIST_48 WGMMA_LIST_40 ", %20, %21, %22, %23"
#define WGMMA_SUMS_48(S) WGMMA_SUMS_40(S), S(20), S(21), S(22), S(23)
#define WGMMA_AT_48 24, 25, 26, 27, 28, 29, 30
#define WGMMA_LIST_56 WGMMA_LIST_48 ", %24, %25, %26, %27"
#define WGMMA_SUMS_56(S) WGMMA_SUMS_48(S), S(24), S(25), S(26), S(27)
#define WGMMA_AT_56 28, 29, 30, 31, 32, 33, 34
#define WGMMA_LIST_64 WGMMA_LIST_56 ", %28, %29, %30, %31"
#define WGMMA_SUMS_64(S) WGMMA_SUMS_56(S), S(28), S(29), S(30), S(31)
#define WGMMA_AT_64 32, 33, 34, 35, 36, 37, 38
#define WGMMA_LIST_72 WGMMA_LIST_64 ", %32, %33, %34, %35"
#define WGMMA_SUMS_72(S) WGMMA_SUMS_64(S), S(32), S(33), S(34), S(35)
#define WGMMA_AT_72 36, 37, 38, 39, 40, 41, 42
#define WGMMA_LIST_80 WGMMA_LIST_72 ", %36, %37, %38, %39"
#define WGMMA_SUMS_80(S) WGMMA_SUMS_72(S), S(36), S(37), S(38), S(39)
#define WGMMA_AT_80 40, 41, 42, 43, 44, 45, 46
#define WGMMA_LIST_88 WGMMA_LIST_80 ", %40, %41, %42, %43"
#define WGMMA_SUMS_88(S) WGMMA_SUMS_80(S), S(40), S(41), S(42), S(43)
#define WGMMA_AT_88 44, 45, 46, 47, 48, 49, 50
#define WGMMA_LIST_96 WGMMA_LIST_88 ", %44, %45, %46, %47"
#define WGMMA_SUMS_96(S) WGMMA_SUMS_88(S), S(44), S(45), S(46), S(47)
#define WGMMA_AT_96 48, 49, 50, 51, 52, 53, 54
#define WGMMA_LIST_104 WGMMA_LIST_96 ", %48, %49, %50, %51"
#define WGMMA_SUMS_104(S) WGMMA_SUMS_96(S), S(48), S(49), S(50), S(51)
#define WGMMA_AT_104 52, 53, 54, 55, 56, 57, 58
#define WGMMA_LIST_112 WGMMA_LIST_104 ", %52, %53, %54, %55"
#define WGMMA_SUMS_112(S) WGMMA_SUMS_104(S), S(52), S(53), S(54), S(55)
#define WGMMA_AT_112 56, 57, 58, 59, 60, 61, 62
#define WGMMA_LIST_120 WGMMA_LIST_112 ", %56, %57, %58, %59"
#define WGMMA_SUMS_120(S) WGMMA_SUMS_112(S), S(56), S(57), S(58), S(59)
#define WGMMA_AT_120 60, 61, 62, 63, 64, 65, 66
#define WGMMA_LIST_128 WGMMA_LIST_120 ", %60, %61, %62, %63"
#define WGMMA_SUMS_128(S) WGMMA_SUMS_120(S), S(60), S(61), S(62), S(63)
#define WGMMA_AT_128 64, 65, 66, 67, 68, 69, 70
#define WGMMA_LIST_136 WGMMA_LIST_128 ", %64, %65, %66, %67"
#define WGMMA_SUMS_136(S) WGMMA_SUMS_128(S), S(64), S(65), S(66), S(67)
#define WGMMA_AT_136 68, 69, 70, 71, 72, 73, 74
#define WGMMA_LIST_144 WGMMA_LIST_136 ", %68, %69, %70, %71"
#define WGMMA_SUMS_144(S) WGMMA_SUMS_136(S), S(68), S(69), S(70), S(71)
#define WGMMA_AT_144 72, 73, 74, 75, 76, 77, 78
#define WGMMA_LIST_152 WGMMA_LIST_144 ", %72, %73, %74, %75"
#define WGMMA_SUMS_152(S) WGMMA_SUMS_144(S), S(72), S(73), S(74), S(75)
#define WGMMA_AT_152 76, 77, 78, 79, 80, 81, 82
#define WGMMA_LIST_160 WGMMA_LIST_152 ", %76, %77, %78, %79"
#define WGMMA_SUMS_160(S) WGMMA_SUMS_152(S), S(76), S(77), S(78), S(79)
#define WGMMA_AT_160 80, 81, 82, 83, 84, 85, 86
#define WGMMA_LIST_168 WGMMA_LIST_160 ", %80, %81, %82, %83"
#define WGMMA_SUMS_168(S) WGMMA_SUMS_160(S), S(80), S(81), S(82), S(83)
#define WGMMA_AT_168 84, 85, 86, 87, 88, 89, 90
#define WGMMA_LIST_176 WGMMA_LIST_168 ", %84, %85, %86, %87"
#define WGMMA_SUMS_176(S) WGMMA_SUMS_168(S), S(84), S(85), S(86), S(87)
#define WGMMA_AT_176 88, 89, 90, 91, 92, 93, 94
#define WGMMA_LIST_184 WGMMA_LIST_176 ", %88, %89, %90, %91"
#define WGMMA_SUMS_184(S) WGMMA_SUMS_176(S), S(88), S(89), S(90), S(91)
#define WGMMA_AT_184 92, 93, 94, 95, 96, 97, 98
#define WGMMA_LIST_192 WGMMA_LIST_184 ", %92, %93, %94, %95"
#define WGMMA_SUMS_192(S) WGMMA_SUMS_184(S), S(92), S(93), S(94), S(95)
#define WGMMA_AT_192 96, 97, 98, 99, 100, 101, 102
#define WGMMA_LIST_200 WGMMA_LIST_192 ", %96, %97, %98, %99"
#define WGMMA_SUMS_200(S) WGMMA_SUMS_192(S), S(96), S(97), S(98), S(99)
#define WGMMA_AT_200 100, 101, 102, 103, 104, 105, 106
#define WGMMA_LIST_208 WGMMA_LIST_200 ", %100, %101, %102, %103"
#define WGMMA_SUMS_208(S) WGMMA_SUMS_200(S), S(100), S(101), S(102), S(103)
#define WGMMA_AT_208 104, 105, 106, 107, 108, 109, 110
#define WGMMA_LIST_216 WGMMA_LIST_208 ", %104, %105, %106, %107"
#define WGMMA_SUMS_216(S) WGMMA_SUMS_208(S), S(104), S(105), S(106), S(107)
#define WGMMA_AT_216 108, 109, 110, 111, 112, 113, 114
#define WGMMA_LIST_224 WGMMA_LIST_216 ", %108, %109, %110, %111"
#define WGMMA_SUMS_224(S) WGMMA_SUMS_216(S), S(108), S(109), S(110), S(111)
#define WGMMA_AT_224 112, 113, 114, 115, 116, 117, 118
#define WGMMA_LIST_232 WGMMA_LIST_224 ", %112, %113, %114, %115"
#define WGMMA_SUMS_232(S) WGMMA_SUMS_224(S), S(112), S(113), S(114), S(115)
#define WGMMA_AT_232 116, 117, 118, 119, 120, 121, 122
#define WGMMA_LIST_240 WGMMA_LIST_232 ", %116, %117, %118, %119"
#define WGMMA_SUMS_240(S) WGMMA_SUMS_232(S), S(116), S(117), S(118), S(119)
#define WGMMA_AT_240 120, 121, 122, 123, 124, 125, 126
#define WGMMA_LIST_248 WGMMA_LIST_240 ", %120, %121, %122, %123"
#define WGMMA_SUMS_248(S) WGMMA_SUMS_240(S), S(120), S(121), S(122), S(123)
#define WGMMA_AT_248 124, 125, 126, 127, 128, 129, 130
#define WGMMA_LIST_256 WGMMA_LIST_248 ", %124, %125, %126, %127"
#define WGMMA_SUMS_256(S) WGMMA_SUMS_248(S), S(124), S(125), S(126), S(127)
#define WGMMA_AT_256 128, 129, 130, 131, 132, 133, 134
/* clang-format on */
