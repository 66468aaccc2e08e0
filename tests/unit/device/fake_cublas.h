/* tests/unit/device/fake_cublas.h: what the fake cuBLASLt was asked, and what it does. */
#ifndef TESTS_FAKE_CUBLAS_H
#define TESTS_FAKE_CUBLAS_H
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int64_t asked, checked, multiplied, open; /* calls; descriptions and layouts that were not destroyed */
    int64_t asked_rows, run_as;               /* the rows that were asked about last; the rows whose choice ran last */
    bool refuses;                             /* what was chosen for other rows */
    bool wants_room;                          /* and needs more working memory for these than there is */
} fake_cublas;

#endif
