/* alloc_size_class.c - the promise of size_class.h, over its whole domain. */
#include "alloc/size_class.h"

#include "alloc_os.h"
#include "test.h"

TEST(a_class_is_the_smallest_that_holds_the_size)
{
    for (size_t size = 0; size <= SIZE_CLASS_BYTES_MAX; size++) {
        unsigned class = size_class(size);
        REQUIRE(class < SIZE_CLASS_COUNT);
        CHECK(size_class_bytes(class) >= size);
        CHECK(class == 0 || size_class_bytes(class - 1) < size);
    }
}

TEST(classes_grow_by_multiples_of_16_up_to_the_largest_small_size)
{
    for (unsigned class = 0; class < SIZE_CLASS_COUNT; class++) {
        CHECK(size_class_bytes(class) % 16 == 0);
        CHECK(class == 0 || size_class_bytes(class) > size_class_bytes(class - 1));
    }
    CHECK(size_class_bytes(SIZE_CLASS_COUNT - 1) == SIZE_CLASS_BYTES_MAX);
}

TEST(waste_is_bounded_as_the_header_says)
{
    for (size_t size = 1; size <= SIZE_CLASS_BYTES_MAX; size++) {
        double waste = (double)(size_class_bytes(size_class(size)) - size);
        if (size > 128)
            CHECK(waste <= (double)size / (size > 8192 ? 4 : 8));
        else
            CHECK(waste < 16);
    }
}

TEST(what_the_table_says_is_what_the_formula_would)
{
    CHECK(size_class(SIZE_CLASS_TABLE_MAX) + 1 == size_class(SIZE_CLASS_TABLE_MAX + 1));
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
