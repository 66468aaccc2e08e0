/* tests/unit/device/test_cuda_h.c: what device/cuda_symbols.h says of the driver, against the toolkit's own cuda.h. The
 * compiler finds the differences; a build without the toolkit has nothing to compare with. */
#if __has_include(<cuda.h>)
#include <cuda.h>
#define HAVE_CUDA_H 1
#endif
#include "device/cuda_symbols.h"
#include "unit.h"

#ifdef HAVE_CUDA_H
#define SAME(name, args)                                                                                               \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), CUresult(*) args),                                  \
                   #name " is another function in cuda.h");
CUDA_SYMBOLS(SAME, SAME)

#define SAME_TYPE(name, type)                                                                                          \
    _Static_assert(__builtin_types_compatible_p(name, type), #name " is another type in cuda.h");
CUDA_TYPES(SAME_TYPE)

#define SAME_NUMBER(name, value) _Static_assert(name == value, #name " is another number in cuda.h");
CUDA_NUMBERS(SAME_NUMBER)

#define SAME_PLACE(ours, field, type, theirs)                                                                          \
    _Static_assert(offsetof(ours, field) == offsetof(type, theirs), #type "." #theirs " lies elsewhere in cuda.h");
SAME_PLACE(cuda_launch, grid, CUlaunchConfig, gridDimX)
SAME_PLACE(cuda_launch, block, CUlaunchConfig, blockDimX)
SAME_PLACE(cuda_launch, shared_bytes, CUlaunchConfig, sharedMemBytes)
SAME_PLACE(cuda_launch, stream, CUlaunchConfig, hStream)
SAME_PLACE(cuda_launch, attributes, CUlaunchConfig, attrs)
SAME_PLACE(cuda_launch, n_attributes, CUlaunchConfig, numAttrs)
SAME_PLACE(cuda_launch_attribute, value, CUlaunchAttribute, value)
SAME_PLACE(cuda_resource, sm.count, CUdevResource, sm.smCount)
SAME_PLACE(cuda_resource, sm.multiple, CUdevResource, sm.smCoscheduledAlignment)
_Static_assert(sizeof(cuda_resource) == sizeof(CUdevResource), "CUdevResource has another size in cuda.h");
_Static_assert(sizeof(cuda_launch) == sizeof(CUlaunchConfig), "CUlaunchConfig has another size in cuda.h");
_Static_assert(sizeof(cuda_launch_attribute) == sizeof(CUlaunchAttribute), "CUlaunchAttribute too");

static void same_as_the_toolkit(void **state) {
    (void)state;
    print_message("cuda.h of CUDA %d.%d\n", CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
}
#else
static void prototypes_need_the_cuda_toolkit_for_its_cuda_h(void **state) {
    (void)state;
    skip();
}
#endif

int main(void) {
#ifdef HAVE_CUDA_H
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_as_the_toolkit)};
#else
    const struct CMUnitTest tests[] = {cmocka_unit_test(prototypes_need_the_cuda_toolkit_for_its_cuda_h)};
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
