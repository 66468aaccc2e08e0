/* The kernel files inside the program: fat binaries, compressed, where the driver may read them in place. Without a
 * compiler for GPUs there are none. */
#include "unit.h"

#include "kernels/gpu/images.h"
#include <string.h>

static void images_are_whole_and_compressed(void **state) {
    (void)state;
    u64 total = 0;
    for (int i = 0; i < gpu_n_images; i++) {
        struct {
            u32 bf16_bias;
            u16 version, header;
            u64 rest;
        } head;
        const gpu_image *image = &gpu_images[i];
        assert_int_equal((uintptr_t)image->data % 8, 0);
        assert_true(image->name[0] && image->bytes > sizeof head);
        memcpy(&head, image->data, sizeof head);
        assert_int_equal(head.bf16_bias, 0xba55ed50u);
        assert_int_equal(head.header + head.rest, image->bytes);
        total += image->bytes;
    }
    assert_true(total <= (u64)gpu_n_images * 60000); /* 42,000 a file on average, 260,000 uncompressed */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(images_are_whole_and_compressed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
