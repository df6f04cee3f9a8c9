/* misuse.c - misuses blocks of different sizes in all the ways that the table `kinds` lists.
 *
 *     misuse                 every case in a process of its own: one line "KIND PLACE VERDICT" each
 *     misuse KIND PLACE      one case in this process
 *
 * The verdicts are:
 *
 *     caught      one line on stderr, and abort()
 *     harmless    afterwards all live blocks are disjoint and keep their contents
 *     overlap     afterwards live blocks overlap or lost their contents
 *     crash       the process dies of another signal than SIGABRT
 *     silent      abort() without a line on stderr
 *     none        the case does not exist for this size
 */
#include "conformance.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { ENDED_OVERLAP = 3, ENDED_NONE = 4, MANY = 3000, LIVE = 32 };

struct place {
    const char *name;
    size_t size;
    size_t alignment;
};

static const struct place places[] = {
    {"16", 16, 0},
    {"48", 48, 0},
    {"256", 256, 0},
    {"1024", 1024, 0},
    {"4096", 4096, 0},
    {"10000", 10000, 0},
    {"32768", 32768, 0},
    {"100000", 100000, 0},
    {"1000000", 1000000, 0},
    {"64at64", 64, 64},
    {"1000at4096", 1000, 4096},
    {"5000at65536", 5000, 65536},
};

static const struct place *place;

static unsigned char *take(void)
{
    void *p =
        place->alignment == 0 ? malloc(place->size) : aligned_alloc(place->alignment, place->size);
    if (p == NULL)
        _exit(1);
    return p;
}

static bool is_large(void)
{
    return place->size > 32768 || place->alignment > 4096;
}

/* --- checks after the misuse ------------------------------------------------------------------ */

struct block {
    unsigned char *p;
    size_t size;
    unsigned char with;
};

static struct block blocks[MANY];
static size_t block_count;

static void keep(unsigned char *p, size_t size)
{
    blocks[block_count] = (struct block){p, size, (unsigned char)(block_count * 31 + 7)};
    memset(p, blocks[block_count].with, size);
    block_count++;
}

static void verify(void)
{
    for (size_t i = 0; i < block_count; i++)
        for (size_t at = 0; at < blocks[i].size; at++)
            if (blocks[i].p[at] != blocks[i].with)
                _exit(ENDED_OVERLAP);
}

/* Allocates many blocks of the size under test and of other sizes. All must keep their contents. */
static void go_on(void)
{
    size_t many = place->size > 5000 ? 60 : MANY - 400;
    for (int round = 0; round < 3; round++) {
        size_t before = block_count;
        for (size_t i = 0; i < many && block_count < MANY - 200; i++)
            keep(take(), place->size);
        for (size_t i = 0; i < 100; i++)
            keep(malloc(i * 37), i * 37);
        verify();
        for (size_t i = before; i < block_count; i += 2) { /* not in the order of allocation */
            struct block *block = &blocks[i];
            free(block->p);
            *block = blocks[--block_count];
        }
        verify();
        while (block_count > before)
            free(blocks[--block_count].p);
    }
}

/* --- threads ---------------------------------------------------------------------------------- */

static unsigned char *handed;

static void *free_handed(void *argument)
{
    free(handed);
    return argument;
}

static void *take_and_hand(void *argument)
{
    handed = take();
    return argument;
}

static void *take_free_and_hand(void *argument)
{
    handed = take();
    free(handed);
    return argument;
}

static void in_thread(void *(*run)(void *))
{
    pthread_t id;
    if (pthread_create(&id, NULL, run, NULL) != 0 || pthread_join(id, NULL) != 0)
        _exit(1);
}

/* --- kinds ------------------------------------------------------------------------------------ */

static void double_adjacent(void)
{
    unsigned char *p = take();
    free(p);
    free(p);
}

static void double_after_others(void)
{
    unsigned char *p = take();
    unsigned char *q = take();
    unsigned char *r = take();
    free(p);
    free(q);
    free(r);
    free(p);
}

/* Frees a block a second time. By then the allocator hands out freed blocks again, but has not yet
 * handed out this one. */
static void double_after_refill(void)
{
    enum { SOME = 40 };
    unsigned char *some[SOME];
    for (size_t i = 0; i < SOME; i++)
        some[i] = take();
    for (size_t i = 0; i < SOME; i++)
        free(some[i]);
    for (size_t i = 0; i < MANY / 2; i++) {
        unsigned char *p = take();
        keep(p, place->size);
        for (size_t k = 0; k < SOME; k++)
            if (p == some[k]) {
                free(some[k == 0 ? SOME - 1 : 0]);
                return;
            }
    }
    _exit(ENDED_NONE);
}

static void double_overwritten(void)
{
    unsigned char *p = take();
    free(p);
    memset(p, 0x5a, 16);
    free(p);
}

static void double_second_in_thread(void)
{
    handed = take();
    free(handed);
    in_thread(free_handed);
}

static void double_first_in_thread(void)
{
    handed = take();
    in_thread(free_handed);
    free(handed);
}

static void double_both_in_threads(void)
{
    handed = take();
    in_thread(free_handed);
    in_thread(free_handed);
}

static void double_in_one_thread_of_others_blocks(void)
{
    in_thread(take_and_hand);
    free(handed);
    free(handed);
}

static void double_after_thread_exit(void)
{
    in_thread(take_free_and_hand);
    free(handed);
}

static void double_after_moving(void)
{
    unsigned char *p = take();
    unsigned char *moved = realloc(p, place->size * 3 + 100);
    if (moved == p)
        _exit(ENDED_NONE);
    free(p);
    free(moved);
}

static void invalid_stack(void)
{
    _Alignas(64) unsigned char here[256];
    memset(here, 0, sizeof here);
    free(take());
    free(here + 64);
}

static _Alignas(64) unsigned char in_data[4096];

static void invalid_static(void)
{
    free(take());
    free(in_data);
}

static void invalid_mapped(void)
{
    free(take());
    free(mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

static void invalid_number(void)
{
    free(take());
    free((void *)(uintptr_t)0x10);
}

static void invalid_not_canonical(void)
{
    free(take());
    free((void *)(uintptr_t)0x8123456789abcdf0);
}

static void invalid_far_beyond(void)
{
    free(take() + (1 << 19));
}

/* Returns a block in the first slice (16 KiB) of its slab, because the fast path of free handles
 * only such blocks. For blocks above 2 KiB the function allocates until a new slab begins, which
 * shows as a gap between two blocks. */
static unsigned char *take_first(void)
{
    unsigned char *before = take();
    keep(before, place->size);
    if (malloc_usable_size(before) <= 2048)
        return before;
    for (size_t i = 0; i < 1200; i++) {
        unsigned char *p = take();
        keep(p, place->size);
        if (is_large() || (p != before + malloc_usable_size(before) && (uintptr_t)p % 16384 == 0))
            return p;
        before = p;
    }
    _exit(ENDED_NONE);
}

/* Frees a block that was never handed out: the last block that begins in the first slice of the
 * slab. In the case of a large block, frees an address far behind the start of the block. */
static void invalid_never_out(void)
{
    unsigned char *p = take_first();
    size_t size = malloc_usable_size(p);
    size_t behind = is_large() ? 64 : (16383 - ((uintptr_t)p & 16383)) / size;
    if (behind == 0)
        _exit(ENDED_NONE);
    free(p + behind * size);
}

static void interior(size_t by)
{
    if (by == 0 || by >= place->size)
        _exit(ENDED_NONE);
    free(take_first() + by);
}

static void interior_1(void)
{
    interior(1);
}

static void interior_8(void)
{
    interior(8);
}

static void interior_16(void)
{
    interior(16);
}

static void interior_half(void)
{
    interior(place->size / 2 & ~(size_t)15);
}

static void interior_of_later_slice(void)
{
    interior(16384 + 32);
}

static void interior_in_thread(void)
{
    if (place->size <= 16)
        _exit(ENDED_NONE);
    handed = take_first() + 16;
    in_thread(free_handed);
}

static void poisoned(void *with)
{
    if (is_large())
        _exit(ENDED_NONE);
    unsigned char *others[LIVE];
    for (size_t i = 0; i < LIVE; i++) {
        others[i] = take();
        keep(others[i], place->size);
    }
    unsigned char *p = take();
    unsigned char *q = take();
    free(q);
    free(p);
    void *victim = with == NULL ? others[3] : with;
    memcpy(p, &victim, sizeof victim);
}

static void poisoned_with_live_block(void)
{
    poisoned(NULL);
}

static void poisoned_with_static(void)
{
    poisoned(in_data);
}

static void poisoned_with_stack(void)
{
    _Alignas(64) unsigned char here[256];
    memset(here, 0, sizeof here);
    poisoned(here);
    go_on();
}

static void poisoned_with_nothing_mapped(void)
{
    poisoned((void *)(uintptr_t)0x12340);
}

static void poisoned_with_odd_address(void)
{
    poisoned(in_data + 7);
}

static void written_after_free(int with)
{
    unsigned char *p = take();
    unsigned char *q = take();
    free(q);
    free(p);
    memset(p, with, place->size);
    memset(q, with, place->size);
}

static void written_ones(void)
{
    written_after_free(0xff);
}

static void written_zeros(void)
{
    written_after_free(0);
}

static void written_behind_the_link(void)
{
    if (place->size <= 16)
        _exit(ENDED_NONE);
    unsigned char *p = take();
    free(p);
    memset(p + 16, 0x77, place->size - 16);
}

/* Writes to a freed block that is on the thread's list. malloc_trim() returns the list's blocks to
 * their slabs, and must notice the write, because no malloc looks at the block in between. */
static void written_before_a_trim(void)
{
    unsigned char *p = take();
    unsigned char *q = take();
    free(q);
    free(p);
    memset(p, 0xff, 16);
    malloc_trim(0);
}

/* Like the last one, but another thread has freed the blocks, so they were posted to their slab. */
static void posted_written_before_a_trim(void)
{
    unsigned char *p = take();
    handed = take();
    in_thread(free_handed);
    handed = p;
    in_thread(free_handed);
    memset(p, 0xff, 16);
    malloc_trim(0);
}

static void resized_after_free(void)
{
    unsigned char *p = take();
    free(p);
    unsigned char *q = realloc(p, place->size * 2);
    keep(q, place->size * 2);
}

/* Resizes a freed block in place. realloc must notice that the block is free: otherwise the
 * following take() could get the same block. */
static void resized_in_place_after_free(void)
{
    unsigned char *p = take();
    free(p);
    unsigned char *q = realloc(p, place->size);
    unsigned char *r = take();
    keep(q, place->size);
    keep(r, place->size);
}

static void sized_after_free(void)
{
    unsigned char *p = take();
    free(p);
    keep(p, malloc_usable_size(p));
}

static const struct kind {
    const char *name;
    void (*run)(void);
} kinds[] = {
    {"double-adjacent", double_adjacent},
    {"double-after-others", double_after_others},
    {"double-after-refill", double_after_refill},
    {"double-overwritten", double_overwritten},
    {"double-second-in-thread", double_second_in_thread},
    {"double-first-in-thread", double_first_in_thread},
    {"double-both-in-threads", double_both_in_threads},
    {"double-of-an-ended-thread's", double_in_one_thread_of_others_blocks},
    {"double-after-thread-exit", double_after_thread_exit},
    {"double-after-moving", double_after_moving},
    {"invalid-stack", invalid_stack},
    {"invalid-static", invalid_static},
    {"invalid-mapped", invalid_mapped},
    {"invalid-number", invalid_number},
    {"invalid-not-canonical", invalid_not_canonical},
    {"invalid-never-out", invalid_never_out},
    {"invalid-far-beyond", invalid_far_beyond},
    {"interior-1", interior_1},
    {"interior-8", interior_8},
    {"interior-16", interior_16},
    {"interior-half", interior_half},
    {"interior-of-later-slice", interior_of_later_slice},
    {"interior-in-thread", interior_in_thread},
    {"poisoned-with-live-block", poisoned_with_live_block},
    {"poisoned-with-static", poisoned_with_static},
    {"poisoned-with-stack", poisoned_with_stack},
    {"poisoned-with-nothing-mapped", poisoned_with_nothing_mapped},
    {"poisoned-with-odd-address", poisoned_with_odd_address},
    {"written-ones", written_ones},
    {"written-zeros", written_zeros},
    {"written-behind-the-link", written_behind_the_link},
    {"written-before-a-trim", written_before_a_trim},
    {"posted-written-before-a-trim", posted_written_before_a_trim},
    {"resized-after-free", resized_after_free},
    {"resized-in-place-after-free", resized_in_place_after_free},
    {"sized-after-free", sized_after_free},
};

/* --- running ---------------------------------------------------------------------------------- */

static _Noreturn void one(const struct kind *kind, const struct place *at)
{
    place = at;
    alarm(20);
    for (size_t i = 0; i < 3; i++) /* later blocks are not the first of a slab */
        keep(take(), place->size);
    kind->run();
    go_on();
    verify();
    _exit(0);
}

/* Returns whether the text is one line that begins with "cairn: ". */
static bool is_line(const char *text)
{
    const char *end = strchr(text, '\n');
    return strncmp(text, "cairn: ", 7) == 0 && end != NULL && end[1] == '\0';
}

static const char *verdict(const struct kind *kind, const struct place *at)
{
    int ends[2];
    if (pipe(ends) != 0)
        exit(1);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        one(kind, at);
    }
    close(ends[1]);
    char text[512] = "";
    size_t length = 0;
    for (ssize_t got; (got = read(ends[0], text + length, sizeof text - 1 - length)) > 0;)
        length += (size_t)got;
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        return WTERMSIG(status) != SIGABRT ? "crash" : is_line(text) ? "caught" : "silent";
    switch (WEXITSTATUS(status)) {
    case 0:
        return "harmless";
    case ENDED_OVERLAP:
        return "overlap";
    case ENDED_NONE:
        return "none";
    default:
        return "broken";
    }
}

int main(int argc, char **argv)
{
    require_cairn();
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (size_t p = 0; p < COUNT(places); p++) {
            if (argc == 3 &&
                (strcmp(argv[1], kinds[k].name) != 0 || strcmp(argv[2], places[p].name) != 0))
                continue;
            if (argc == 3)
                one(&kinds[k], &places[p]);
            printf("%s %s %s\n", kinds[k].name, places[p].name, verdict(&kinds[k], &places[p]));
            fflush(stdout);
        }
    return 0;
}
