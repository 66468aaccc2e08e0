/* tests/unit/device/test_cublas_h.c: what device/cublas_symbols.h says of cuBLASLt, against the toolkit's own
 * cublasLt.h. The compiler finds the differences; a build without the toolkit has nothing to compare with. */
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define HAVE_CUBLAS_H 1
#endif
#include "device/cublas_symbols.h"
#include "unit.h"

#ifdef HAVE_CUBLAS_H
#define SAME(name, args)                                                                                               \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), cublasStatus_t(*) args),                            \
                   #name " is another function in cublasLt.h");
CUBLAS_SYMBOLS(SAME)
#define SAME_SIZE(name, args)                                                                                          \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), size_t(*) args),                                    \
                   #name " is another function in cublasLt.h");
CUBLAS_SIZES(SAME_SIZE)

#define SAME_TYPE(name, type)                                                                                          \
    _Static_assert(__builtin_types_compatible_p(name, type), #name " is another type in cublasLt.h");
CUBLAS_TYPES(SAME_TYPE)

#define POINTER(name) _Static_assert(sizeof(name) == sizeof(void *), #name " is no pointer in cublasLt.h");
CUBLAS_OPAQUE(POINTER)

#define SAME_NUMBER(name, value) _Static_assert(name == value, #name " is another number in cublasLt.h");
CUBLAS_NUMBERS(SAME_NUMBER)

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == 64, "cublasLtMatmulAlgo_t has another size");
_Static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == 96, "cublasLtMatmulHeuristicResult_t has another size");
_Static_assert(offsetof(cublasLtMatmulHeuristicResult_t, algo) == 0, "algo lies elsewhere");
_Static_assert(offsetof(cublasLtMatmulHeuristicResult_t, state) == 72, "state lies elsewhere");

static void same_as_the_toolkit(void **state) {
    (void)state;
    print_message("cublasLt.h of cuBLAS %d.%d\n", CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR);
}
#else
static void prototypes_need_the_cuda_toolkit_for_its_cublas_h(void **state) {
    (void)state;
    skip();
}
#endif

int main(void) {
#ifdef HAVE_CUBLAS_H
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_as_the_toolkit)};
#else
    const struct CMUnitTest tests[] = {cmocka_unit_test(prototypes_need_the_cuda_toolkit_for_its_cublas_h)};
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
