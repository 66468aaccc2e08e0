/* What one process tells another to compute: any bytes are read as a job, and all that was accepted is looked at. */
#include "tests/lib/wire_reader.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    err e = {0};
    u64 sum = 0;
    if (wire_read_any(data, size, 3, &sum, &e) != ST_OK && !e.text[0]) abort();
    __asm__ volatile("" : : "r"(sum));
    return 0;
}
