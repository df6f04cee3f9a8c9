/* alloc_fuzz.c - reads its input as calls to the allocator by all of its names, from several
 * threads. A model (the shadow) knows every block, its contents, and the heap that it belongs to.
 * Refused system calls and limits are part of the input.
 *
 * A thread is represented by its heap. The input says which thread calls next, and when a thread
 * starts or ends. So only one thread runs at a time. Now and then a real thread starts and ends.
 * Each input ends with all of its blocks freed, but the allocator keeps its state for the next
 * input. A failure may therefore need the inputs before it.
 */
#define _GNU_SOURCE 1

#include <cairn/cairn.h>

#include "../unit/alloc_names.h"

#include "../unit/alloc_os.h"
#include "fuzz.h"

#include "../../src/abi/cairn.c"
#include "../../src/abi/glibc.c"
#include "../../src/abi/malloc.c"

#include <pthread.h>

#define KIB ((size_t)1 << 10)

enum {
    BLOCKS = 64,
    THREADS = 4,
    HEAPS = 2,
    EDGE = 64, /* bytes that are filled at each end of a block */
    ERRNO = 4711,
    SIZE_BITS = 21, /* of the largest sizes */
    REAL_CALLS = 30,
    /* Limit on slices in use after an input: heaps, and slabs of the heap for ending threads. */
    LEFT_SLICES_MOST = 400,
    REGION_BYTES_MOST = 40 << 20, /* small: the region fills up, and checks are quick */
};

struct shadow_block {
    unsigned char *start; /* NULL: the entry is unused */
    size_t size;
    size_t usable;
    unsigned char fill;
    unsigned char heap; /* number of its shared heap; 0: none */
};

static struct {
    struct shadow_block blocks[BLOCKS];
    unsigned count;
    struct heap *threads[THREADS]; /* the heaps of the threads that are not calling */
    unsigned caller;
    struct cairn_heap *heaps[HEAPS];
    unsigned char fill;
    bool real; /* a real thread has run; an input starts at most one */
    bool walked;
    bool counted; /* statistics were read; once in an input is enough */
} shadow;

/* --- blocks ----------------------------------------------------------------------------------- */

static size_t edge_of(const struct shadow_block *block)
{
    return block->size < EDGE ? block->size : EDGE;
}

static bool is_all(const unsigned char *start, size_t size, unsigned char value)
{
    return size == 0 || (start[0] == value && memcmp(start, start + 1, size - 1) == 0);
}

static void fill(const struct shadow_block *block)
{
    memset(block->start, block->fill, edge_of(block));
    memset(block->start + block->size - edge_of(block), block->fill, edge_of(block));
}

static void verify(const struct shadow_block *block)
{
    EXPECT(is_all(block->start, edge_of(block), block->fill));
    EXPECT(is_all(block->start + block->size - edge_of(block), edge_of(block), block->fill));
    EXPECT(malloc_usable_size(block->start) == block->usable);
}

static void add(struct shadow_block *block, void *start, size_t size, size_t alignment,
                unsigned heap)
{
    *block = (struct shadow_block){start, size, malloc_usable_size(start), ++shadow.fill,
                                   (unsigned char)heap};
    EXPECT((uintptr_t)start % alignment == 0 && (uintptr_t)start % 16 == 0);
    EXPECT(block->usable >= size);
    for (unsigned i = 0; i < BLOCKS; i++) {
        const struct shadow_block *other = &shadow.blocks[i];
        EXPECT(other == block || other->start == NULL ||
               block->start + block->usable <= other->start ||
               other->start + other->usable <= block->start);
    }
    fill(block);
    shadow.count++;
}

static void forget(struct shadow_block *block)
{
    block->start = NULL;
    shadow.count--;
}

/* --- calls ------------------------------------------------------------------------------------ */

/* The state before a call. The checks after the call need it to decide whether the call was allowed
 * to fail, and whether errno is right. */
struct before {
    unsigned refused;
};

static struct before before(void)
{
    errno = ERRNO;
    return (struct before){fake_os.refused_count};
}

static bool was_given(struct before before, const void *p)
{
    EXPECT(errno == (p != NULL ? ERRNO : ENOMEM));
    EXPECT(p != NULL || fake_os.refused_count != before.refused ||
           page_heap_statistics().limit_slices < REGION_SLICES_MAX);
    errno = ERRNO;
    return p != NULL;
}

static size_t any_size(struct input *input)
{
    return input_size(input, input_byte(input) < 16 ? SIZE_BITS : 12);
}

static bool reads_as_zero(const unsigned char *start, size_t size)
{
    size_t edge = size < 2 * KIB ? size : 2 * KIB;
    return start == NULL || (is_all(start, edge, 0) && is_all(start + size - edge, edge, 0));
}

static void allocate(struct shadow_block *block, struct input *input)
{
    size_t size = any_size(input);
    size_t alignment = 1;
    unsigned heap = 0;
    void *p = NULL;
    unsigned kind = input_byte(input) % 16;
    if (kind >= 3 && kind <= 5)
        alignment = (size_t)16 << input_byte(input) % 18;
    struct before then = before();
    switch (kind) {
    default:
        p = malloc(size);
        break;
    case 1:
        p = calloc(1, size);
        EXPECT(reads_as_zero(p, size));
        break;
    case 2:
        p = realloc(NULL, size);
        break;
    case 3:
        p = aligned_alloc(alignment, size);
        break;
    case 4:
        errno = posix_memalign(&p, alignment, size);
        errno = errno == 0 ? ERRNO : errno;
        break;
    case 5:
        p = memalign(alignment, size);
        break;
    case 6:
        p = reallocarray(NULL, size, 1);
        break;
    case 7:
        alignment = os_page_bytes();
        p = valloc(size);
        break;
    case 8:
        alignment = os_page_bytes();
        p = pvalloc(size);
        break;
    case 9:
        p = cairn_malloc(size);
        break;
    case 10:
        p = cairn_calloc(size, 1);
        EXPECT(reads_as_zero(p, size));
        break;
    case 11:
    case 12:
        heap = 1 + kind % HEAPS;
        if (shadow.heaps[heap - 1] == NULL)
            return;
        alignment = (size_t)1 << input_byte(input) % 16;
        if (size % 2 == 0)
            p = cairn_heap_aligned_alloc(shadow.heaps[heap - 1], alignment, size);
        else
            p = cairn_heap_calloc(shadow.heaps[heap - 1], 1, size);
        if (size % 2 != 0) {
            EXPECT(reads_as_zero(p, size));
            alignment = 1;
        }
        break;
    }
    if (was_given(then, p))
        add(block, p, size, alignment, heap);
}

static void release(struct shadow_block *block, unsigned kind)
{
    verify(block);
    before();
    switch (kind % 8) {
    default:
        free(block->start);
        break;
    case 1:
        free_sized(block->start, block->size);
        break;
    case 2:
        free_aligned_sized(block->start, 16, block->size);
        break;
    case 3:
        cfree(block->start);
        break;
    case 4:
        cairn_free(block->start);
        break;
    case 5:
        EXPECT(realloc(block->start, 0) == NULL);
        break;
    }
    EXPECT(errno == ERRNO);
    forget(block);
}

static void resize(struct shadow_block *block, struct input *input)
{
    verify(block);
    struct shadow_block was = *block;
    size_t size = any_size(input) + 1;
    unsigned kind = input_byte(input);
    if (kind & 8) /* grows by a little */
        size = was.size + size % 5000 + 1;
    unsigned heap = 0;
    struct before then = before();
    unsigned char *p;
    if (kind % 4 == 0 && shadow.heaps[0] != NULL) {
        p = cairn_heap_realloc(shadow.heaps[0], was.start, size);
        heap = 1;
    } else if (kind % 4 == 1) {
        p = reallocarray(was.start, 1, size);
    } else {
        p = realloc(was.start, size);
    }
    if (!was_given(then, p)) {
        verify(block);
        return;
    }
    EXPECT(is_all(p, edge_of(&was) < size ? edge_of(&was) : size, was.fill));
    EXPECT(size < was.size || is_all(p + was.size - edge_of(&was), edge_of(&was), was.fill));
    forget(block);
    add(block, p, size, 1, p == was.start ? was.heap : heap);
}

/* Checks that every function refuses impossible sizes. */
static void refuse(const struct shadow_block *block, struct input *input)
{
    volatile size_t most = SIZE_MAX; /* volatile: the compiler warns of constants */
    volatile size_t no_power = 48;
    size_t size = most - any_size(input);
    void *untouched = &shadow;
    void *p = untouched;
    EXPECT(posix_memalign(&p, 64, size) == ENOMEM && p == untouched);
    EXPECT(posix_memalign(&p, no_power / 2, 1) == EINVAL && p == untouched);
    before();
    void *(*one[])(size_t) = {malloc, valloc, pvalloc, cairn_malloc};
    for (size_t i = 0; i < COUNT_OF(one); i++) {
        EXPECT(one[i](size) == NULL && errno == ENOMEM);
        before();
    }
    EXPECT(calloc(size / 2, 3) == NULL && errno == ENOMEM);
    before();
    EXPECT(aligned_alloc(4096, size) == NULL && errno == ENOMEM);
    before();
    EXPECT(aligned_alloc(no_power, 1) == NULL && errno == EINVAL);
    before();
    EXPECT(realloc(block->start, size) == NULL && errno == ENOMEM);
    before();
    EXPECT(reallocarray(block->start, size / 2, 3) == NULL && errno == ENOMEM);
    if (block->start != NULL)
        verify(block);
}

/* --- threads ---------------------------------------------------------------------------------- */

/* Lets another thread make the following calls. */
static void switch_to(unsigned next)
{
    shadow.threads[shadow.caller] = thread_own_heap();
    shadow.caller = next;
    thread_heap = shadow.threads[next];
}

/* Does the same as on_exit_of_thread() in thread.c. If `late`, also does what a destructor of the
 * thread could still do after that: allocates and frees blocks. */
static void end_thread(bool late)
{
    struct heap *heap = thread_own_heap();
    if (heap == &heap_none)
        return;
    thread_heap = (struct heap *)&heap_gone;
    heap_release(heap);
    for (size_t size = 1; late && size < 100 * KIB; size *= 7)
        free(malloc(size));
    thread_heap = (struct heap *)&heap_none;
}

/* The body of a real thread: allocates into unused entries and frees used ones. Some blocks outlive
 * the thread. */
static void *live(void *argument)
{
    struct input *input = argument;
    for (unsigned i = 0; i < REAL_CALLS; i++) {
        struct shadow_block *block = &shadow.blocks[input_byte(input) % BLOCKS];
        if (block->start == NULL)
            allocate(block, input);
        else
            release(block, i);
    }
    return NULL;
}

static void live_really(struct input *input)
{
    pthread_t id;
    if (shadow.real)
        return;
    shadow.real = true;
    EXPECT(pthread_create(&id, NULL, live, input) == 0 && pthread_join(id, NULL) == 0);
}

/* --- heaps ------------------------------------------------------------------------------------ */

static void end_heap(unsigned i, bool destroyed)
{
    for (unsigned k = 0; k < BLOCKS; k++) {
        struct shadow_block *block = &shadow.blocks[k];
        if (block->start == NULL || block->heap != i + 1)
            continue;
        verify(block);
        block->heap = 0;
        if (destroyed)
            forget(block);
    }
    (destroyed ? cairn_heap_destroy : cairn_heap_release)(shadow.heaps[i]);
    shadow.heaps[i] = NULL;
}

static void turn_heap(unsigned kind)
{
    unsigned i = kind % HEAPS;
    if (shadow.heaps[i] != NULL) {
        end_heap(i, kind / 2 % 2 == 0);
        return;
    }
    struct before then = before();
    shadow.heaps[i] = cairn_heap_create();
    was_given(then, shadow.heaps[i]);
}

/* --- looking ---------------------------------------------------------------------------------- */

static void look(void)
{
    cairn_check();
    for (unsigned i = 0; i < THREADS; i++)
        if (i != shadow.caller && shadow.threads[i] != &heap_none)
            heap_check(shadow.threads[i]);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (shadow.blocks[i].start != NULL)
            verify(&shadow.blocks[i]);
}

static void count(void)
{
    if (shadow.counted)
        return;
    shadow.counted = true;
    struct cairn_stats stats;
    cairn_statistics(&stats);
    size_t bytes = 0;
    size_t large = 0;
    for (unsigned i = 0; i < BLOCKS; i++)
        if (shadow.blocks[i].start != NULL) {
            bytes += shadow.blocks[i].usable;
            large += slab_at(region_index(shadow.blocks[i].start))->kind == RUN_LARGE;
        }
    EXPECT(stats.live_count >= shadow.count && stats.live_bytes >= bytes);
    EXPECT(stats.large_count == large);
    EXPECT(stats.used_bytes >= stats.live_bytes &&
           stats.mapped_bytes >= stats.used_bytes + stats.idle_bytes);
}

static void write_down(void)
{
    if (shadow.counted)
        return;
    shadow.counted = true;
    static char text[CAIRN_JSON_BYTES];
    size_t length = cairn_statistics_json(text, sizeof text);
    EXPECT(length > 0 && strlen(text) == length);
    EXPECT(cairn_statistics_json(text, length) == 0);
    struct mallinfo2 info = mallinfo2();
    EXPECT(info.uordblks + info.fordblks == info.arena);
}

static bool visit(void *block, size_t usable, void *found)
{
    unsigned i = 0;
    while (i < BLOCKS && shadow.blocks[i].start != block)
        i++;
    EXPECT(i < BLOCKS && shadow.blocks[i].usable == usable);
    ++*(unsigned *)found;
    return true;
}

static void walk(void)
{
    if (shadow.walked)
        return;
    shadow.walked = true;
    unsigned found = 0;
    EXPECT(cairn_walk(visit, &found) && found == shadow.count);
}

/* --- inputs ----------------------------------------------------------------------------------- */

static void step(struct input *input)
{
    unsigned choice = input_byte(input);
    struct shadow_block *block = &shadow.blocks[input_byte(input) % BLOCKS];
    if (choice < 150 && block->start == NULL) {
        allocate(block, input);
    } else if (choice < 110) {
        release(block, choice);
    } else if (choice < 150) {
        resize(block, input);
    } else if (choice < 156) {
        for (unsigned i = 0; i < BLOCKS; i++)
            if (shadow.blocks[i].start == NULL)
                allocate(&shadow.blocks[i], input);
    } else if (choice < 160) {
        for (unsigned i = 0; i < BLOCKS; i += 1 + choice % 2)
            if (shadow.blocks[i].start != NULL)
                release(&shadow.blocks[i], i);
    } else if (choice < 185) {
        switch_to(choice % THREADS);
    } else if (choice < 195) {
        end_thread(choice % 2 == 0);
    } else if (choice < 203) {
        turn_heap(choice);
    } else if (choice < 208) {
        cairn_purge(input_size(input, SIZE_BITS));
    } else if (choice < 211) {
        malloc_trim(0);
    } else if (choice < 214) {
        cairn_collect();
    } else if (choice < 218) {
        cairn_limit(choice % 2 == 0 ? 0 : input_size(input, SIZE_BITS));
    } else if (choice < 230) {
        fake_os.refuse_call = fake_os.call_count + 1 + input_byte(input) % 4;
        fake_os.refuse_more = input_byte(input) % 8;
    } else if (choice < 234) {
        refuse(block, input);
    } else if (choice < 235) {
        live_really(input);
    } else if (choice < 237) {
        count();
    } else if (choice < 238) {
        write_down();
    } else if (choice < 239) {
        if (input_byte(input) % 16 == 0)
            walk();
    } else {
        look();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, data + size};
    fake_os.refuse_call = 0;
    fake_os.limit_bytes = REGION_BYTES_MOST;
    shadow.caller = 0;
    shadow.real = shadow.walked = shadow.counted = false;
    for (unsigned i = 0; i < THREADS; i++)
        shadow.threads[i] = (struct heap *)&heap_none;
    thread_heap = (struct heap *)&heap_none;
    while (input.next < input.end)
        step(&input);
    fake_os.refuse_call = 0;
    cairn_limit(0);
    look();
    for (unsigned i = 0; i < HEAPS; i++)
        if (shadow.heaps[i] != NULL)
            end_heap(i, size % 2 == 0);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (shadow.blocks[i].start != NULL)
            release(&shadow.blocks[i], i);
    for (unsigned i = 0; i < THREADS; i++) {
        switch_to(i);
        end_thread(false);
    }
    EXPECT(shadow.count == 0);
    EXPECT(page_heap_statistics().used_slices <= LEFT_SLICES_MOST);
    return 0;
}
