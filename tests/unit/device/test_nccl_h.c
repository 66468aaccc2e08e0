/* tests/unit/device/test_nccl_h.c: what device/nccl_symbols.h says of NCCL, against NVIDIA's own nccl.h. The compiler
 * finds the differences; a build without that header, which needs the CUDA toolkit's, has nothing to compare with. */
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define HAVE_NCCL_H 1
#endif
#include "device/nccl_symbols.h"
#include "unit.h"

#ifdef HAVE_NCCL_H
#define SAME(name, args)                                                                                               \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), ncclResult_t(*) args),                              \
                   #name " is another function in nccl.h");
NCCL_SYMBOLS(SAME)
#define SAME_TEXT(name, args)                                                                                          \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), const char *(*)args),                               \
                   #name " is another function in nccl.h");
NCCL_TEXTS(SAME_TEXT)
#define SAME_NUMBER(name, value) _Static_assert(name == value, #name " is another number in nccl.h");
NCCL_NUMBERS(SAME_NUMBER)
_Static_assert(sizeof(ncclResult_t) == sizeof(unsigned) && sizeof(ncclDataType_t) == sizeof(unsigned) &&
                   sizeof(ncclRedOp_t) == sizeof(unsigned),
               "an enum of another size");

static void same_as_nvidias(void **state) {
    (void)state;
    print_message("nccl.h of NCCL %d.%d\n", NCCL_MAJOR, NCCL_MINOR);
}
#else
static void prototypes_need_nccl_h(void **state) {
    (void)state;
    skip();
}
#endif

int main(void) {
#ifdef HAVE_NCCL_H
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_as_nvidias)};
#else
    const struct CMUnitTest tests[] = {cmocka_unit_test(prototypes_need_nccl_h)};
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
