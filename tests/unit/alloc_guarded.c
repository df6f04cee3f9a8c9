/* alloc_guarded.c - tests guarded blocks where the reading of a stack allocates, and how many
 * blocks are guarded. The tests run in their order, in one process. */
#include "alloc/alloc.h"

#include "alloc/detour.h"
#include "alloc_os.h"
#include "test.h"

static bool detours; /* reading a stack makes the thread put its heap aside */

/* Stands for the C library's function, whose first call loads a library and so allocates. */
int backtrace(void **frames, int count);
int backtrace(void **frames, int count)
{
    (void)frames, (void)count;
    if (detours) {
        thread_heap->trim.due = true;
        thread_heap->trim.detours = 100;
        alloc_free(alloc_malloc(300));
        heap_cool(thread_own_heap());
        alloc_free(alloc_malloc(300));
    }
    return 0;
}

enum { CALLS = 20000, MOST = 300 };

static void *live[MOST];

/* Returns how many of CALLS blocks are guarded. A few of them live at the same time. */
static unsigned guarded_of_calls(size_t bytes)
{
    unsigned count = 0;
    for (unsigned i = 0; i < CALLS; i++) {
        void **place = &live[i % 40];
        alloc_free(*place);
        *place = alloc_malloc(bytes);
        count += guarded_has(*place);
    }
    for (unsigned i = 0; i < 40; i++) {
        alloc_free(live[i]);
        live[i] = NULL;
    }
    if (thread_has_heap())
        heap_check(thread_heap);
    return count;
}

/* The first block of a class was guarded only by chance. A block of a larger class that was
 * borrowed left a list from which that class was served without a look at guarded pages. */
TEST(every_block_is_guarded_if_a_page_is_free)
{
    alloc_guard(1);
    if (!guarded_is_on())
        SKIP("no memory for guarded blocks");
    for (unsigned class = 0; size_class_bytes(class) <= 4096; class++) {
        void *p = alloc_malloc(size_class_bytes(class));
        CHECK(guarded_has(p));
        alloc_free(p);
    }

    for (unsigned i = 0; i < GUARDED_BLOCKS; i++)
        live[i] = alloc_malloc(100);
    void *small[64];
    for (unsigned class = 0; size_class_bytes(class) <= 4096; class++) {
        small[class] = alloc_malloc(size_class_bytes(class));
        CHECK(!guarded_has(small[class])); /* all pages are in use */
    }
    for (unsigned class = 0; size_class_bytes(class) <= 4096; class++) {
        alloc_free(live[class]);
        live[class] = alloc_malloc(size_class_bytes(class));
        CHECK(guarded_has(live[class]));
    }
    for (unsigned class = 0; size_class_bytes(class) <= 4096; class++)
        alloc_free(small[class]);
    for (unsigned i = 0; i < GUARDED_BLOCKS; i++) {
        alloc_free(live[i]);
        live[i] = NULL;
    }
    heap_check(thread_heap);
}

/* A list of 256 blocks was handed out between two guarded ones, whatever the N of CAIRN_GUARDED=N
 * was. */
TEST(one_in_so_many_blocks_is_guarded_also_if_that_is_less_than_a_list)
{
    alloc_guard(1);
    if (!guarded_is_on())
        SKIP("no memory for guarded blocks");
    static const uint32_t every[] = {1, 2, 10, 100};
    for (size_t i = 0; i < COUNT_OF(every); i++) {
        guarded_every = every[i];
        double mean = (double)CALLS / every[i];
        for (size_t bytes = 16; bytes <= 4096; bytes *= 4) {
            guarded_of_calls(bytes); /* the counts of the former N come to their end */
            unsigned count = guarded_of_calls(bytes);
            CHECK(count > 0.8 * mean && count < 1.2 * mean);
        }
    }
}

/* The stack of a block is read before it is known that no page is free. If that began a detour, the
 * call went on with heap_away, and wrote to constant memory. */
TEST(a_call_goes_on_with_its_own_heap_if_the_reading_of_a_stack_began_a_detour)
{
    if (!guarded_is_on())
        SKIP("no memory for guarded blocks");
    guarded_every = 1;
    for (unsigned i = 0; i < MOST; i++)
        live[i] = alloc_malloc(100);
    CHECK(!guarded_has(live[MOST - 1])); /* all pages are in use */
    heap_cool(thread_own_heap());
    detours = true;
    for (unsigned i = 0; i < 20; i++) {
        void *p = alloc_malloc(1000 + 100 * i);
        CHECK(p != NULL && !guarded_has(p));
        alloc_free(p);
    }
    detours = false;
    for (unsigned i = 0; i < MOST; i++)
        alloc_free(live[i]);
    CHECK(thread_has_heap());
    heap_check(thread_own_heap());
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
