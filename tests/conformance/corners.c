/* corners.c - tests the corner cases of every allocation function of C, POSIX and glibc: the value
 * that the function returns, and the blocks and errno that it must leave unchanged. */
#include "conformance.h"
#include "test.h"

/* Names that only glibc has. With another C library, the usual name stands for each of them. */
#ifdef __GLIBC__
#define LIBC(name)            named("__libc_" name)
#define LIBC_OLD(name, usual) named(name)
#else
#define LIBC(name)            named(name)
#define LIBC_OLD(name, usual) named(usual)
#endif

static const size_t too_large[] = {
    SIZE_MAX,        SIZE_MAX - 1,     SIZE_MAX - 15,    SIZE_MAX - 16,       SIZE_MAX - 4095,
    SIZE_MAX - 4096, SIZE_MAX - 65535, SIZE_MAX / 2 + 1, SIZE_MAX / 2 + 4096, PTRDIFF_MAX,
    (size_t)1 << 62, (size_t)1 << 56,  (size_t)1 << 48,
};

static const size_t alignments[] = {16, 64, 4096, 8192, 65536, 1 << 21, 1 << 30};

static bool refused(const void *p)
{
    bool right = p == NULL && errno == ENOMEM;
    errno = 0;
    return right;
}

/* --- sizes ------------------------------------------------------------------------------------ */

TEST(every_function_refuses_an_impossible_size)
{
    void *(*libc_malloc)(size_t) = (void *(*)(size_t))LIBC("malloc");
    void *(*libc_calloc)(size_t, size_t) = (void *(*)(size_t, size_t))LIBC("calloc");
    void *(*libc_realloc)(void *, size_t) = (void *(*)(void *, size_t))LIBC("realloc");
    void *(*libc_memalign)(size_t, size_t) = (void *(*)(size_t, size_t))LIBC("memalign");
    void *(*libc_valloc)(size_t) = (void *(*)(size_t))LIBC("valloc");
    void *(*libc_pvalloc)(size_t) = (void *(*)(size_t))LIBC("pvalloc");
    for (size_t i = 0; i < COUNT(too_large); i++) {
        size_t size = too_large[i];
        errno = 0;
        CHECK(refused(malloc(size)));
        CHECK(refused(calloc(1, size)));
        CHECK(refused(calloc(size, 1)));
        CHECK(refused(realloc(NULL, size)));
        CHECK(refused(reallocarray(NULL, 1, size)));
        CHECK(refused(reallocarray(NULL, size, 1)));
        CHECK(refused(valloc(size)));
        CHECK(refused(pvalloc(size)));
        CHECK(refused(libc_malloc(size)));
        CHECK(refused(libc_calloc(size, 1)));
        CHECK(refused(libc_realloc(NULL, size)));
        CHECK(refused(libc_valloc(size)));
        CHECK(refused(libc_pvalloc(size)));
        for (size_t a = 0; a < COUNT(alignments); a++) {
            CHECK(refused(aligned_alloc(alignments[a], size)));
            CHECK(refused(memalign(alignments[a], size)));
            CHECK(refused(libc_memalign(alignments[a], size)));
            void *before = &size;
            void *p = before;
            errno = 77;
            CHECK(posix_memalign(&p, alignments[a], size) == ENOMEM);
            CHECK(p == before && errno == 77);
            errno = 0;
        }
    }
}

TEST(a_product_that_overflows_is_refused_and_no_block_is_lost)
{
    static const size_t factors[][2] = {
        {(size_t)1 << 33, (size_t)1 << 33},
        {(size_t)1 << 32, (size_t)1 << 32},
        {SIZE_MAX, 2},
        {2, SIZE_MAX},
        {SIZE_MAX, SIZE_MAX},
        {SIZE_MAX / 2, 3},
        {SIZE_MAX / 16 + 1, 16},
        {(size_t)1 << 63, 2},
        {3, SIZE_MAX / 2},
    };
    char *kept = malloc(100);
    REQUIRE(kept != NULL);
    memset(kept, 7, 100);
    for (size_t i = 0; i < COUNT(factors); i++) {
        errno = 0;
        CHECK(refused(calloc(factors[i][0], factors[i][1])));
        CHECK(refused(reallocarray(NULL, factors[i][0], factors[i][1])));
        CHECK(refused(reallocarray(kept, factors[i][0], factors[i][1])));
    }
    for (int i = 0; i < 100; i++)
        CHECK(kept[i] == 7);
    free(kept);
}

TEST(a_realloc_that_fails_leaves_the_block)
{
    static const size_t sizes[] = {1, 16, 100, 5000, 40000, 3000000};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char *p = malloc(sizes[i]);
        REQUIRE(p != NULL);
        memset(p, 42, sizes[i]);
        errno = 0;
        CHECK(refused(realloc(p, PTRDIFF_MAX)));
        CHECK(refused(realloc(p, SIZE_MAX)));
        CHECK(p[0] == 42 && p[sizes[i] - 1] == 42);
        free(p);
    }
}

TEST(blocks_of_size_0_have_distinct_addresses)
{
    enum { MANY = 2000 };
    static void *blocks[MANY];
    for (size_t i = 0; i < MANY; i++) {
        void *aligned = NULL;
        CHECK(posix_memalign(&aligned, 64, 0) == 0);
        void *some[] = {
            malloc(0), calloc(0, 8), calloc(8, 0),      realloc(NULL, 0), aligned_alloc(32, 0),
            valloc(0), pvalloc(0),   memalign(4096, 0), aligned,          reallocarray(NULL, 0, 8)};
        blocks[i] = some[i % COUNT(some)];
        for (size_t k = 0; k < COUNT(some); k++) {
            CHECK(some[k] != NULL);
            if (k != i % COUNT(some))
                free(some[k]);
        }
    }
    for (size_t i = 0; i < MANY; i++)
        for (size_t k = 0; k < i; k++)
            if (blocks[i] == blocks[k])
                CHECK(blocks[i] != blocks[k]);
    for (size_t i = 0; i < MANY; i++)
        free(blocks[i]);
}

/* --- blocks ----------------------------------------------------------------------------------- */

TEST(every_block_is_aligned_to_16_bytes_and_large_enough)
{
    for (size_t size = 0; size < 70000; size += size < 2100 ? 1 : 61) {
        char *p = malloc(size);
        char *q = calloc(1, size);
        char *r = realloc(malloc(3), size + 1);
        REQUIRE(p != NULL && q != NULL && r != NULL);
        CHECK((uintptr_t)p % 16 == 0 && (uintptr_t)q % 16 == 0 && (uintptr_t)r % 16 == 0);
        CHECK(malloc_usable_size(p) >= size && malloc_usable_size(q) >= size &&
              malloc_usable_size(r) > size);
        free(p);
        free(q);
        free(r);
    }
}

TEST(the_usable_size_is_stable_and_all_of_it_can_be_written)
{
    enum { MANY = 300 };
    static unsigned char *blocks[MANY];
    static size_t usable[MANY];
    for (size_t i = 0; i < MANY; i++) {
        blocks[i] = malloc(i * i / 2);
        REQUIRE(blocks[i] != NULL);
        usable[i] = malloc_usable_size(blocks[i]);
        memset(blocks[i], (int)i, usable[i]);
    }
    for (size_t i = 0; i < MANY; i++) {
        CHECK(malloc_usable_size(blocks[i]) == usable[i]);
        for (size_t k = 0; k < usable[i]; k++)
            if (blocks[i][k] != (unsigned char)i)
                REQUIRE(blocks[i][k] == (unsigned char)i);
        free(blocks[i]);
    }
    CHECK(malloc_usable_size(NULL) == 0);
}

TEST(calloc_clears_memory_that_was_used_before)
{
    for (size_t size = 1; size < 4000000; size = size * 5 / 3 + 1) {
        for (int round = 0; round < 3; round++) {
            unsigned char *p = calloc(1, size);
            REQUIRE(p != NULL);
            size_t usable = malloc_usable_size(p);
            for (size_t i = 0; i < size; i++)
                if (p[i] != 0)
                    REQUIRE(p[i] == 0);
            memset(p, 0xff, usable);
            free(p);
        }
    }
}

/* By default the kernel allows a process 65,530 mappings. An allocator that needs two mappings for
 * each block would exceed this limit. */
TEST(forty_thousand_large_blocks_live_at_once)
{
    enum { MANY = 40000 };
    static char *blocks[MANY];
    for (size_t i = 0; i < MANY; i++) {
        blocks[i] = malloc(200 << 10);
        REQUIRE(blocks[i] != NULL);
        *blocks[i] = (char)i;
    }
    /* Frees every other block first, so that each free block lies between blocks in use. */
    for (size_t i = 0; i < MANY; i++)
        free(blocks[i * 2 % MANY + i * 2 / MANY]);
    malloc_trim(0);
}

/* --- realloc ---------------------------------------------------------------------------------- */

TEST(realloc_to_size_0_frees_the_block_and_keeps_errno)
{
    static const size_t sizes[] = {1, 100, 5000, 40000, 3000000};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        size_t live = live_bytes();
        errno = 55;
        CHECK(realloc(malloc(sizes[i]), 0) == NULL && errno == 55);
        CHECK(reallocarray(malloc(sizes[i]), 0, 10) == NULL && errno == 55);
        CHECK(live_bytes() == live);
    }
}

TEST(realloc_keeps_the_contents_between_all_pairs_of_sizes)
{
    static const size_t sizes[] = {1,     8,     15,     16,      17,      24,     100,   1000,
                                   1024,  1025,  4096,   8192,    8193,    16384,  32767, 32768,
                                   32769, 65536, 100000, 1000000, 4194304, 9000000};
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (size_t k = 0; k < COUNT(sizes); k++) {
            unsigned char *p = malloc(sizes[i]);
            REQUIRE(p != NULL);
            for (size_t at = 0; at < sizes[i]; at++)
                p[at] = (unsigned char)(at * 7 + at / 251);
            p = realloc(p, sizes[k]);
            REQUIRE(p != NULL);
            size_t both = sizes[i] < sizes[k] ? sizes[i] : sizes[k];
            for (size_t at = 0; at < both; at++)
                if (p[at] != (unsigned char)(at * 7 + at / 251))
                    REQUIRE(p[at] == (unsigned char)(at * 7 + at / 251));
            memset(p, 1, sizes[k]);
            free(p);
        }
}

/* --- alignment -------------------------------------------------------------------------------- */

TEST(posix_memalign_refuses_invalid_alignments_and_changes_nothing)
{
    static const size_t wrong[] = {0,  1,  2,   3,    4,    7,        12,
                                   24, 48, 100, 4095, 4097, SIZE_MAX, SIZE_MAX - 7};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        int here;
        void *p = &here;
        errno = 66;
        CHECK(posix_memalign(&p, wrong[i], 100) == EINVAL);
        CHECK(p == &here && errno == 66);
    }
}

TEST(aligned_alloc_refuses_an_alignment_that_is_no_power_of_two)
{
    static const size_t wrong[] = {0, 3, 5, 6, 7, 24, 100, 4095, 4097, SIZE_MAX, SIZE_MAX / 2};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        errno = 0;
        CHECK(aligned_alloc(wrong[i], 96) == NULL && errno == EINVAL);
    }
    for (size_t alignment = 1; alignment <= 8; alignment *= 2)
        free(aligned_alloc(alignment, 3)); /* smaller alignments are valid too */
}

TEST(memalign_takes_the_next_power_of_two_as_the_c_library_does)
{
    static const size_t odd[] = {0, 1, 3, 24, 100, 1000, 5000, 100000};
    for (size_t i = 0; i < COUNT(odd); i++) {
        char *p = memalign(odd[i], 100);
        REQUIRE(p != NULL);
        size_t power = 16;
        while (power < odd[i])
            power *= 2;
        CHECK((uintptr_t)p % power == 0);
        memset(p, 1, 100);
        free(p);
    }
    errno = 0;
    CHECK(memalign(SIZE_MAX / 2 + 2, 1) == NULL && errno == EINVAL);
}

TEST(alignments_up_to_a_gibibyte_work)
{
    for (size_t alignment = 1; alignment <= (size_t)1 << 30; alignment *= 2) {
        static const size_t sizes[] = {1, 100, 20000, 70000};
        for (size_t i = 0; i < COUNT(sizes); i++) {
            char *p = aligned_alloc(alignment, sizes[i]);
            REQUIRE(p != NULL);
            CHECK((uintptr_t)p % alignment == 0);
            memset(p, 1, sizes[i]);
            free(p);
        }
    }
}

TEST(valloc_and_pvalloc_give_whole_pages)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t size = 0; size < 100000; size += 977) {
        char *p = valloc(size);
        char *q = pvalloc(size);
        REQUIRE(p != NULL && q != NULL);
        CHECK((uintptr_t)p % page == 0 && (uintptr_t)q % page == 0);
        CHECK(malloc_usable_size(q) >= (size + page - 1) / page * page);
        free(p);
        free(q);
    }
}

/* --- errno ------------------------------------------------------------------------------------ */

TEST(free_keeps_errno)
{
    for (size_t size = 0; size < 30000000; size = size * 2 + 7) {
        void *p = malloc(size);
        void *q = aligned_alloc(4096, size);
        errno = 99;
        free(p);
        free(q);
        free(NULL);
        CHECK(errno == 99);
    }
}

TEST(successful_calls_keep_errno)
{
    for (size_t size = 0; size < 30000000; size = size * 2 + 7) {
        errno = 99;
        void *p = realloc(malloc(size), size + 1000);
        void *q = calloc(1, size);
        CHECK(errno == 99);
        free(p);
        free(q);
    }
}

/* --- other names ------------------------------------------------------------------------------ */

TEST(blocks_can_be_freed_by_any_name)
{
    void (*frees[])(void *) = {free, (void (*)(void *))LIBC_OLD("cfree", "free"),
                               (void (*)(void *))LIBC("free"),
                               (void (*)(void *))named("cairn_free")};
    void (*sized)(void *, size_t) = (void (*)(void *, size_t))named("free_sized");
    void (*aligned_sized)(void *, size_t, size_t) =
        (void (*)(void *, size_t, size_t))named("free_aligned_sized");
    void *(*libc_malloc)(size_t) = (void *(*)(size_t))LIBC("malloc");
    void *(*libc_calloc)(size_t, size_t) = (void *(*)(size_t, size_t))LIBC("calloc");
    void *(*libc_realloc)(void *, size_t) = (void *(*)(void *, size_t))LIBC("realloc");
    void *(*cairn_malloc)(size_t) = (void *(*)(size_t))named("cairn_malloc");
    size_t live = live_bytes();
    for (size_t size = 1; size < 200000; size = size * 3 + 1) {
        for (size_t i = 0; i < COUNT(frees); i++) {
            frees[i](malloc(size));
            frees[i](libc_malloc(size));
            frees[i](libc_realloc(libc_calloc(size, 1), size * 2));
            frees[i](cairn_malloc(size));
            frees[i](memalign(256, size));
            frees[i](NULL);
        }
        sized(malloc(size), size);
        aligned_sized(aligned_alloc(512, size), 512, size);
        sized(NULL, 0);
        aligned_sized(NULL, 64, 0);
    }
    CHECK(live_bytes() == live);
}

int main(int argc, char **argv)
{
    require_cairn();
    return test_main(argc, argv);
}
