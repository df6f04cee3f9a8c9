/* alloc_size_class.c - tests the contract of size_class.h over all sizes. */
#include "alloc/size_class.h"

#include "alloc_os.h"
#include "test.h"

TEST(a_class_is_the_smallest_that_holds_the_size)
{
    for (size_t size = 0; size <= SIZE_CLASS_BYTES_MAX; size++) {
        unsigned class = size_class(size);
        CHECK(class < SIZE_CLASS_COUNT);
        if (class >= SIZE_CLASS_COUNT)
            return;
        CHECK(size_class_bytes(class) >= size);
        CHECK(class == 0 || size_class_bytes(class - 1) < size);
    }
}

TEST(classes_grow_by_multiples_of_16_up_to_the_largest_small_size)
{
    size_t before = 0;
    for (unsigned i = 0; i < SIZE_CLASS_COUNT; i++) {
        CHECK(size_class_bytes(i) % 16 == 0);
        CHECK(size_class_bytes(i) > before);
        before = size_class_bytes(i);
    }
    CHECK(before == SIZE_CLASS_BYTES_MAX);
}

TEST(waste_is_bounded_as_the_header_says)
{
    for (size_t size = 1; size <= SIZE_CLASS_BYTES_MAX; size++) {
        unsigned class = size_class(size);
        CHECK(class < SIZE_CLASS_COUNT);
        if (class >= SIZE_CLASS_COUNT)
            return;
        double waste = (double)(size_class_bytes(class) - size);
        if (size > 128)
            CHECK(waste <= (double)size / (size > 8192 ? 4 : 8));
        else
            CHECK(waste < 16);
    }
}

TEST(table_and_formula_meet_without_a_gap)
{
    CHECK(size_class(SIZE_CLASS_TABLE_MAX) + 1 == size_class(SIZE_CLASS_TABLE_MAX + 1));
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
