/* alloc_region.c - tests where the region is placed on unusual machines and in unusual processes.
 * Each case runs in a process of its own. */
#include "alloc/region.h"

#include "alloc/large.h"
#include "alloc/page_heap.h"
#include "alloc_os.h"
#include "test.h"

#include <limits.h>
#include <sys/wait.h>

#define GIB ((size_t)1 << 30)
#define MIB ((size_t)1 << 20)

/* The places in the address space that the tests below can use. A sanitizer occupies some of
 * them. */
#ifdef __SANITIZE_ADDRESS__
enum { HAS_39_BITS = 0, HAS_ABOVE = 1, HAS_WINDOWS = 0 };
#elif defined(__SANITIZE_THREAD__)
enum { HAS_39_BITS = 1, HAS_ABOVE = 0, HAS_WINDOWS = 1 };
#else
enum { HAS_39_BITS = 1, HAS_ABOVE = 1, HAS_WINDOWS = 1 };
#endif

#define EXPECT(condition) fake_expect(condition, "not true: " #condition)

static bool holds(void (*in_child)(void))
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        in_child();
        exit(0);
    }
    int status = 1;
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* Allocates blocks of `size` until that fails, and frees them all. Returns the sum of their
 * sizes. */
static size_t fill(size_t size)
{
    enum { MANY = 1 << 13 };
    static char *blocks[MANY];
    size_t count = 0;
    bool zero;
    while (count < MANY && (blocks[count] = large_allocate(size, 1, &zero)) != NULL) {
        blocks[count][0] = blocks[count][size - 1] = 1;
        count++;
    }
    page_heap_check();
    for (size_t i = 0; i < count; i++)
        large_free(slab_at(region_index(blocks[i])));
    page_heap_check();
    return count * size;
}

static void serve(void)
{
    bool zero;
    char *p = large_allocate(100 * MIB, 1, &zero);
    EXPECT(p != NULL && (!zero || (p[0] == 0 && p[100 * MIB - 1] == 0)));
    EXPECT(region_has(region_index(p)) && !region_has(region_index(NULL)) &&
           !region_has(region_index(&zero)));
    p[0] = p[100 * MIB - 1] = 1;
    large_free(slab_at(region_index(p)));
    page_heap_check();
}

/* --- places ----------------------------------------------------------------------------------- */

static void some_are_occupied(void)
{
    fake_os.occupied_first = 1;
    fake_os.occupied_last = 40;
    serve();
    EXPECT(fake_os.claim_count > 42);
}

static void half_of_one_is_occupied(void)
{
    fake_os.occupied_first = fake_os.occupied_last = 2;
    serve();
}

TEST(an_occupied_place_is_left_for_another)
{
    CHECK(holds(some_are_occupied));
    CHECK(holds(half_of_one_is_occupied));
}

static void in_39_bits(void)
{
    fake_os.addresses_end = (uintptr_t)1 << 38;
    serve();
    EXPECT(region.base < (uintptr_t)1 << 38);
}

static void in_42_bits(void)
{
    fake_os.addresses_end = (uintptr_t)1 << 42;
    serve();
    EXPECT(region.base > (uintptr_t)1 << 40 && region.base < (uintptr_t)1 << 42);
}

TEST(there_is_a_place_on_machines_with_39_or_42_bit_addresses)
{
    CHECK(!HAS_39_BITS || holds(in_39_bits));
    CHECK(!HAS_WINDOWS || !HAS_ABOVE || holds(in_42_bits));
}

/* Simulates an emulator: all 64 tries in each of the three usual windows fail, and the region is
 * placed below the address at which the kernel places a mapping. */
static void out_of_reach(void)
{
    fake_os.occupied_first = 1;
    fake_os.occupied_last = 192;
    serve();
    size_t first = fill(64 * MIB);
    EXPECT(first <= 4 * GIB && first >= 3 * GIB);
    EXPECT(fill(64 * MIB) == first);
    EXPECT(fill(17 * MIB) >= first - first / 16);
    EXPECT(fill(5 * GIB) == 0);
    serve();
}

TEST(without_a_usual_place_the_region_is_smaller_and_can_be_full)
{
    CHECK(!HAS_ABOVE || holds(out_of_reach));
}

static void nowhere(void)
{
    bool zero;
    fake_os.occupied_first = 1;
    fake_os.occupied_last = UINT_MAX;
    EXPECT(large_allocate(MIB, 1, &zero) == NULL);
    unsigned calls = fake_os.call_count;
    /* Now the kernel also refuses to map memory at an address that it chooses itself. The allocator
     * tries this after 192 random addresses. */
    fake_os.refuse_after = calls + 192;
    EXPECT(large_allocate(MIB, 1, &zero) == NULL);
    fake_os.refuse_after = calls; /* now nothing can be mapped at all */
    EXPECT(large_allocate(MIB, 1, &zero) == NULL);
    fake_os.refuse_after = fake_os.occupied_first = 0;
    serve();
}

TEST(without_any_place_requests_return_null_until_one_is_free)
{
    CHECK(holds(nowhere));
}

/* --- pieces ----------------------------------------------------------------------------------- */

static void behind_a_neighbour(void)
{
    serve();
    uintptr_t from = (uintptr_t)region_address(atomic_load(&region.slices)) + 3 * CHUNK_BYTES;
    uintptr_t to = from + 40 * GIB;
    fake_os.foreign_from = from;
    fake_os.foreign_to = to;
    unsigned claims = fake_os.claim_count;
    bool zero;
    char *p = large_allocate(2 * GIB, 1, &zero);
    EXPECT(p != NULL && (uintptr_t)p >= to);
    EXPECT((uintptr_t)p < to + 41 * GIB); /* little more than the mapping itself is skipped */
    EXPECT(fake_os.claim_count - claims < 50);
    large_free(slab_at(region_index(p)));
    serve();
}

TEST(a_foreign_mapping_of_gigabytes_is_skipped_in_one_call)
{
    CHECK(!HAS_WINDOWS || holds(behind_a_neighbour));
}

static void a_chunk_at_a_time(void)
{
    serve();
    size_t all = atomic_load(&region.slices) << SLICE_SHIFT;
    for (unsigned i = 0; i < 100; i++) { /* the limit allows the region one more chunk */
        fake_os.limit_bytes = fake_os.claimed_bytes + 3 * MIB;
        EXPECT(fill(all + MIB) <= all + MIB);
        fake_os.limit_bytes = 0;
        serve();
    }
}

TEST(when_less_memory_is_available_the_region_grows_by_less)
{
    CHECK(holds(a_chunk_at_a_time));
}

static void no_records(void)
{
    serve();
    size_t records = page_heap_statistics().record_bytes;
    bool zero;
    fake_os.limit_bytes = fake_os.claimed_bytes + 10 * GIB;
    EXPECT(large_allocate(11 * GIB, 1, &zero) == NULL);
    EXPECT(page_heap_statistics().record_bytes == records);
    fake_os.limit_bytes = 0;
    serve();
}

/* The records of a piece were once mapped before the piece, in steps of 64 KiB. One request beyond
 * a limit then used up all address space below the limit. */
TEST(a_piece_that_is_refused_leaves_no_records)
{
    CHECK(holds(no_records));
}

/* --- large alignments ------------------------------------------------------------------------- */

static char *aligned(size_t size, size_t alignment)
{
    bool zero;
    char *p = large_allocate(size, alignment, &zero);
    EXPECT(p != NULL && (uintptr_t)p % alignment == 0 && zero);
    p[0] = p[size - 1] = 1;
    page_heap_check();
    return p;
}

/* Keeps blocks of 1 GiB until the next multiple of 4 GiB lies at least 1 GiB behind the region's
 * end, and then does what serve() does. The base of the region is random, so the multiple may lie
 * in memory that is already mapped. */
static void serve_before_a_gap(void)
{
    bool zero;
    do
        EXPECT(large_allocate(GIB, 1, &zero) != NULL);
    while (-(uintptr_t)region_address(atomic_load(&region.slices)) % (4 * GIB) < GIB);
    serve();
}

static void far_apart(void)
{
    serve_before_a_gap();
    size_t mapped = page_heap_statistics().mapped_slices;
    char *first = aligned(MIB, 4 * GIB);
    char *second = aligned(3 * MIB, 4 * GIB);
    EXPECT(first != second);
    /* Only the chunks of the two blocks were mapped, and not the addresses between them. */
    EXPECT(page_heap_statistics().mapped_slices == mapped + 3 * CHUNK_SLICES);
    EXPECT(!region_has(region_index(first - GIB)) || slab_at(region_index(first - GIB))->kind == 0);
    serve();
    large_free(slab_at(region_index(first)));
    large_free(slab_at(region_index(second)));
    page_heap_check();
    bool zero;
    char *again = large_allocate(MIB, 4 * GIB, &zero); /* the place is used again */
    EXPECT(again == first || again == second);
}

static void gaps_are_filled_first(void)
{
    serve_before_a_gap();
    aligned(MIB, 4 * GIB);
    size_t end = atomic_load(&region.slices);
    bool zero;
    char *p = large_allocate(GIB / 2, 1, &zero);
    EXPECT(p != NULL && region_index(p) < end && atomic_load(&region.slices) == end);
    large_free(slab_at(region_index(p)));
    page_heap_check();
}

static void occupied_places_are_passed_over(void)
{
    serve_before_a_gap();
    fake_os.occupied_chunks = 2;
    char *p = aligned(MIB, 4 * GIB);
    EXPECT(region_index(p) << SLICE_SHIFT >= 8 * GIB);
    fake_os.occupied_chunks = 1000;
    bool zero;
    EXPECT(large_allocate(MIB, 4 * GIB, &zero) == NULL);
    fake_os.occupied_chunks = 0;
    EXPECT(large_allocate(MIB, 256 * GIB, &zero) == NULL);
    serve();
}

TEST(a_large_alignment_maps_only_the_block_and_leaves_a_gap_that_others_use)
{
    CHECK(!HAS_WINDOWS || !HAS_ABOVE || holds(far_apart));
    CHECK(!HAS_WINDOWS || !HAS_ABOVE || holds(gaps_are_filled_first));
    CHECK(!HAS_WINDOWS || !HAS_ABOVE || holds(occupied_places_are_passed_over));
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
