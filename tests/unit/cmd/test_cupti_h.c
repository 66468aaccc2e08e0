/* tests/unit/cmd/test_cupti_h.c: what cmd/lib/cupti_symbols.h says of CUPTI, against the toolkit's own cupti.h. The
 * compiler finds the differences; a build without the toolkit's CUPTI has nothing to compare with. */
#if __has_include(<cupti.h>)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cupti.h>
#pragma GCC diagnostic pop
#define HAVE_CUPTI_H 1
#endif
#include "cmd/lib/cupti_symbols.h"
#include "unit.h"

#ifdef HAVE_CUPTI_H
#if CUPTI_API_VERSION >= 130000
typedef CUpti_ActivityKernel10 kernel_record;
#else
typedef CUpti_ActivityKernel9 kernel_record;
#endif
#define SAME(name, args)                                                                                               \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), CUptiResult(*) args),                               \
                   #name " is another function in cupti.h");
CUPTI_SYMBOLS(SAME)
#define SAME_NUMBER(name, value) _Static_assert(name == value, #name " is another number in cupti.h");
CUPTI_NUMBERS(SAME_NUMBER)
#define SAME_PLACE(field)                                                                                              \
    _Static_assert(offsetof(cupti_kernel, field) == offsetof(kernel_record, field), #field " lies elsewhere");         \
    _Static_assert(sizeof((cupti_kernel){0}.field) == sizeof((kernel_record){0}.field), #field " has another size");
SAME_PLACE(kind)
SAME_PLACE(start)
SAME_PLACE(end)
SAME_PLACE(contextId)
SAME_PLACE(gridX)
SAME_PLACE(gridY)
SAME_PLACE(gridZ)
SAME_PLACE(name)
SAME_PLACE(graphId)
SAME_PLACE(clusterX)

static void same_as_the_toolkit(void **state) {
    (void)state;
    print_message("cupti.h of CUPTI %d\n", CUPTI_API_VERSION);
}
#else
static void records_need_the_cuda_toolkit_for_its_cupti_h(void **state) {
    (void)state;
    skip();
}
#endif

int main(void) {
#ifdef HAVE_CUPTI_H
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_as_the_toolkit)};
#else
    const struct CMUnitTest tests[] = {cmocka_unit_test(records_need_the_cuda_toolkit_for_its_cupti_h)};
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
