/* alignment.c - allocates with every alignment from 8 bytes to 16 MiB and more than 200 sizes.
 * Blocks must be aligned, disjoint, and keep their contents. */
#include "conformance.h"
#include "test.h"

enum { LIVE = 24 };

static size_t sizes[512];
static size_t size_count;

static void choose_sizes(size_t alignment)
{
    size_count = 0;
    for (size_t size = 0; size < 64; size++)
        sizes[size_count++] = size;
    for (size_t power = 64; power <= (size_t)1 << 22; power *= 2)
        for (int part = 0; part < 4; part++) {
            size_t size = power + power / 4 * (size_t)part;
            sizes[size_count++] = size - 1;
            sizes[size_count++] = size;
            sizes[size_count++] = size + 1;
        }
    for (size_t by = 1; by <= 3; by++) {
        sizes[size_count++] = alignment * by - 1;
        sizes[size_count++] = alignment * by;
        sizes[size_count++] = alignment * by + 1;
    }
}

static void *allocate(size_t alignment, size_t size, size_t turn)
{
    void *p = NULL;
    switch (turn % 3) {
    case 0:
        return aligned_alloc(alignment, size);
    case 1:
        return posix_memalign(&p, alignment, size) == 0 ? p : NULL;
    default:
        return memalign(alignment, size);
    }
}

/* Fills a block of up to 4,096 bytes, or the first and the last 64 bytes of a larger block. */
static void mark(unsigned char *p, size_t size, unsigned char with)
{
    if (size <= 4096) {
        memset(p, with, size);
    } else {
        memset(p, with, 64);
        memset(p + size - 64, with, 64);
    }
}

static bool marked(const unsigned char *p, size_t size, unsigned char with)
{
    size_t edge = size <= 4096 ? size : 64;
    for (size_t i = 0; i < edge; i++)
        if (p[i] != with || p[size - 1 - i] != with)
            return false;
    return true;
}

TEST(blocks_are_aligned_and_do_not_overlap)
{
    unsigned long blocks = 0;
    for (size_t alignment = 8; alignment <= (size_t)16 << 20; alignment *= 2) {
        unsigned char *live[LIVE] = {NULL};
        size_t live_size[LIVE] = {0};
        choose_sizes(alignment);
        REQUIRE(size_count >= 200);
        for (size_t i = 0; i < size_count; i++) {
            size_t at = i % LIVE;
            CHECK(live[at] == NULL || marked(live[at], live_size[at], (unsigned char)(i - LIVE)));
            free(live[at]);
            live[at] = allocate(alignment, sizes[i], i);
            live_size[at] = sizes[i];
            REQUIRE(live[at] != NULL);
            CHECK((uintptr_t)live[at] % alignment == 0);
            CHECK(malloc_usable_size(live[at]) >= sizes[i]);
            mark(live[at], sizes[i], (unsigned char)i);
            blocks++;
        }
        for (size_t i = size_count; i < size_count + LIVE; i++) {
            CHECK(marked(live[i % LIVE], live_size[i % LIVE], (unsigned char)(i - LIVE)));
            free(live[i % LIVE]);
        }
    }
    printf("%lu blocks\n", blocks);
}

TEST(an_aligned_block_is_resized_like_any_other)
{
    for (size_t alignment = 32; alignment <= (size_t)1 << 20; alignment *= 2)
        for (size_t size = 1; size < 200000; size = size * 3 + 5) {
            unsigned char *p = aligned_alloc(alignment, size);
            REQUIRE(p != NULL);
            mark(p, size, 9);
            p = realloc(p, size * 2 + 50);
            REQUIRE(p != NULL);
            CHECK(size > 4096 ? p[0] == 9 && p[size - 1] == 9 : marked(p, size, 9));
            free(p);
        }
}

int main(int argc, char **argv)
{
    require_cairn();
    return test_main(argc, argv);
}
