#include "stubs.h"

#include "alloc/broken.h"
#include "alloc/detour.h"
#include "alloc/emergency.h"
#include "alloc/guarded_block.h"
#include "alloc/huge_page_collapse.h"
#include "alloc/large.h"
#include "alloc/page_heap.h"
#include "alloc/run_cache_learning.h"
#include "alloc/site.h"
#include "memory.h"
#include "os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { SLICES_EACH = 128, SLICES = SLICES_EACH * (MODEL_CHECKER_THREADS_MAX + 1) };

struct stubs stubs;

enum { EMERGENCY_BYTES = 1 << 20 };
static char *emergency; /* memory for emergency_allocate() */

struct region region;
const struct heap heap_none;
const struct heap heap_gone;
const struct heap heap_away;
_Thread_local struct heap *thread_heap = (struct heap *)&heap_none;

/* Defined by the linker: the range of the program's variables. */
extern char __data_start[], _end[];

void stubs_make(void)
{
    size_t content_bytes = (size_t)SLICES * SLICE_BYTES;
    char *start = mmap(NULL, REGION_SLICE_SPAN + content_bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    emergency = malloc(EMERGENCY_BYTES);
    if (emergency == NULL || start == MAP_FAILED ||
        mprotect(start, SLICES * RECORD_BYTES, PROT_READ | PROT_WRITE) != 0 ||
        mprotect(start + REGION_SLICE_SPAN, content_bytes, PROT_READ | PROT_WRITE) != 0) {
        perror("no memory for a model");
        exit(2);
    }
    region.base = (uintptr_t)start + REGION_SLICE_SPAN;
    region.records = (uintptr_t)start;
    atomic_store_explicit(&region.slices, SLICES, memory_order_relaxed);
    memory_track(start, SLICES * RECORD_BYTES);
    memory_track(start + REGION_SLICE_SPAN, content_bytes);
    /* `region` is not tracked: it never changes from here on, so a load from it need not be a
     * step. */
    char *constant = (char *)&region;
    memory_track(__data_start, (size_t)(constant - __data_start));
    memory_track(constant + sizeof region, (size_t)(_end - constant) - sizeof region);
    slab_secret = 0x5ec2e7;
}

/* --- threads ---------------------------------------------------------------------------------- */

void stubs_begin(unsigned threads)
{
    stubs = (struct stubs){0};
    for (unsigned i = 0; i < threads; i++)
        stubs.now[i] = stubs.heaps[i] = heap_acquire(false);
}

void stubs_enter(unsigned thread)
{
    thread_heap = stubs.now[thread];
}

void stubs_leave(unsigned thread)
{
    stubs.now[thread] = thread_heap;
}

void stubs_as(unsigned thread)
{
    thread_heap = stubs.now[thread];
}

void stubs_as_nobody(void)
{
    thread_heap = (struct heap *)&heap_gone;
}

void stubs_end_thread(void)
{
    struct heap *heap = thread_heap;
    model_checker_note("its heap is released", NULL);
    thread_heap = (struct heap *)&heap_gone;
    heap_release(heap);
    if (model_checker_self() < 0)
        for (unsigned i = 0; i < MODEL_CHECKER_THREADS_MAX; i++)
            if (stubs.now[i] == heap)
                stubs.now[i] = thread_heap;
}

void stubs_begin_thread(void)
{
    thread_heap = heap_acquire(false);
    model_checker_note("is a new thread", NULL);
}

bool stubs_has_thread(unsigned thread)
{
    return stubs.now[thread] != &heap_gone;
}

struct heap *thread_birth(void)
{
    model_checker_fail("a thread of a model has no heap, and allocates");
}

void *thread_first(size_t size)
{
    (void)size;
    model_checker_fail("a thread of a model has no heap, and allocates");
}

bool thread_is_first(void)
{
    model_checker_fail("a thread of a model has no heap, and frees a block");
}

void *thread_late(size_t size)
{
    (void)size;
    model_checker_fail("a thread of a model has ended, and allocates");
}

/* No thread of a model has anything to give back, so none makes a detour. */
void detour_begin(void)
{
}

void heap_due(void)
{
}

void detour_end(void)
{
    model_checker_fail("a thread of a model makes a detour");
}

/* --- blocks ----------------------------------------------------------------------------------- */

static unsigned number_of(const void *p)
{
    for (unsigned i = 0; i < stubs.block_count; i++)
        if (stubs.blocks[i].p == p)
            return i;
    if (stubs.block_count == STUBS_BLOCKS)
        model_checker_fail("more blocks than `stubs` can hold: raise STUBS_BLOCKS");
    stubs.blocks[stubs.block_count].p = (void *)p;
    stubs.blocks[stubs.block_count].out = false;
    return stubs.block_count++;
}

bool stubs_is_out(const void *p)
{
    return stubs.blocks[number_of(p)].out;
}

struct slab *stubs_slab(const void *p)
{
    for (unsigned i = 0; i < stubs.run_count; i++)
        if (region_index(p) - stubs.runs[i].first < stubs.runs[i].slices)
            return slab_at(stubs.runs[i].first);
    model_checker_fail("a block lies outside every run: %p", p);
}

void *stubs_malloc(size_t size)
{
    model_checker_note("malloc", NULL);
    void *p = subject_malloc(size);
    if (p == NULL)
        model_checker_fail("malloc failed");
    model_checker_note("malloc returned", p);
    unsigned number = number_of(p);
    if (stubs.blocks[number].out)
        model_checker_fail("a block is handed out twice");
    stubs.blocks[number].out = true;
    memory_touch(p, sizeof(struct block), true);
    return p;
}

void stubs_free(void *p)
{
    model_checker_note("free of", p);
    unsigned number = number_of(p);
    if (!stubs.blocks[number].out)
        model_checker_fail("the test frees a block that is not allocated");
    stubs.blocks[number].out = false; /* from here on another thread may get it */
    memory_touch(p, sizeof(struct block), true);
    subject_free(p);
}

/* --- children of a fork without handlers ------------------------------------------------------ */

static unsigned *entered(void)
{
    int self = model_checker_self();
    return &stubs.entered[self < 0 ? MODEL_CHECKER_THREADS_MAX : self];
}

void lock_enter(void)
{
    ++*entered();
}

void lock_leave(void)
{
    --*entered();
}

bool lock_is_unsafe(void)
{
    return stubs.new_child;
}

/* Replaces thread_adopt_child() of thread.c, which also looks at the locks of other modules. */
bool thread_adopt_child(void)
{
    if (heap_has_taken_lock() || (stubs.in_handler && stubs.entered[0] > 0))
        return false;
    stubs.new_child = false;
    return true;
}

void *emergency_allocate(size_t size, size_t alignment)
{
    if (!stubs.new_child)
        model_checker_fail("emergency_allocate() is called, although locks may be taken");
    size_t bytes = (size + 15) & ~(size_t)15;
    if (alignment > 1 || bytes > EMERGENCY_BYTES - stubs.emergency_used)
        model_checker_fail("emergency_allocate() has too little memory");
    stubs.emergency_used += bytes;
    return emergency + stubs.emergency_used - bytes;
}

void emergency_free(void *p)
{
    (void)p;
}

bool emergency_owns(const void *p)
{
    return (uintptr_t)p - (uintptr_t)emergency < EMERGENCY_BYTES;
}

size_t emergency_bytes(const void *p)
{
    (void)p;
    model_checker_fail("a thread of a model asks for the size of a block");
}

/* --- the page heap ---------------------------------------------------------------------------- */

size_t page_heap_allocate(size_t slices, size_t room, bool *zero)
{
    (void)room;
    int self = model_checker_self();
    unsigned part = self < 0 ? MODEL_CHECKER_THREADS_MAX : (unsigned)self;
    if (stubs.slices_used[part] + slices >= SLICES_EACH || stubs.run_count == STUBS_RUNS)
        model_checker_fail("more slices than a thread of a model has");
    size_t index = part * SLICES_EACH + 1 + stubs.slices_used[part];
    stubs.slices_used[part] += slices;
    stubs.runs[stubs.run_count++] =
        (struct run){.first = (uint32_t)index, .slices = (uint32_t)slices};
    *zero = true;
    return index;
}

struct page_heap_use page_heap_free(size_t index, size_t slices)
{
    struct run *run = NULL;
    for (unsigned i = 0; i < stubs.run_count; i++)
        if (stubs.runs[i].first == index && stubs.runs[i].slices == slices)
            run = &stubs.runs[i];
    if (run == NULL)
        model_checker_fail("given-back memory is not a run: %zu slices from %zu on", slices, index);
    model_checker_note("gives back the run of", region_address(index));
    if (run->returned)
        model_checker_fail("a run is given back twice");
    run->returned = true;
    for (unsigned i = 0; i < stubs.block_count; i++)
        if (stubs.blocks[i].out && region_index(stubs.blocks[i].p) - index < slices)
            model_checker_fail("a run is given back while a block of it is allocated");
    const struct slab *slab = slab_at(index);
    memory_touch(slab, RECORD_BYTES, true);
    for (size_t i = 1; i < slices; i++) {
        memory_touch(&slab_at(index + i)->owner, sizeof slab->owner, true);
        memory_touch(&slab_at(index + i)->back, sizeof slab->back, true);
        memory_touch(&slab_at(index + i)->kind, sizeof slab->kind, true);
    }
    for (size_t i = 0; i < slab->carved; i++)
        memory_touch(slab_start(slab) + i * size_class_bytes(slab->class), sizeof(struct block),
                     true);
    memory_forbid(slab_at(index), slices * RECORD_BYTES);
    memory_forbid(region_address(index), slices * SLICE_BYTES);
    return (struct page_heap_use){0};
}

/* --- functions that a model does not have ----------------------------------------------------- */

size_t page_heap_allocate_aligned(size_t slices, size_t alignment, bool *zero)
{
    (void)alignment;
    return page_heap_allocate(slices, 0, zero);
}

void huge_page_collapse_epoch(void)
{
}

struct page_heap_level page_heap_level(void)
{
    return (struct page_heap_level){.fresh = 0};
}

struct page_heap_level page_heap_epoch(void)
{
    return page_heap_level();
}

void os_wait_ms(_Atomic uint32_t *word, uint32_t value, unsigned ms)
{
    (void)word, (void)value, (void)ms;
    model_checker_fail("os_wait_ms() is called");
}

void os_wake(_Atomic uint32_t *word)
{
    (void)word;
    model_checker_fail("os_wake() is called, and no thread waits");
}

size_t page_heap_purge(size_t keep_bytes)
{
    (void)keep_bytes;
    return 0;
}

bool page_heap_trim(void *start, size_t bytes)
{
    (void)start, (void)bytes;
    model_checker_fail("a slab of a model is trimmed");
}

bool page_heap_extend(size_t index, size_t slices, size_t more, bool *zero)
{
    (void)index, (void)slices, (void)more, (void)zero;
    return false;
}

_Atomic int background_due;

void background_begin(void)
{
    model_checker_fail("background_begin() is called without a request");
}

/* No sites are counted, and there are no large blocks. */
struct site *site_table;
bool site_matters;
bool run_cache_learns;
bool big_cache_on;

/* Nothing is learnt, and nothing is kept by place. */
uint32_t run_cache_learnt(uint32_t share)
{
    return share;
}

void run_cache_learning_missed(uint32_t kept, uint32_t threads)
{
    (void)kept, (void)threads;
}

void run_cache_learning_freed(uint32_t kept)
{
    (void)kept;
}

void big_cache_begin(void)
{
}

uint32_t big_cache_place(const void *caller, const void *frame)
{
    (void)caller, (void)frame;
    return 1;
}

void heap_free_by_place(struct heap *heap, struct slab *slab)
{
    (void)heap, (void)slab;
}

void *heap_reuse_by_place(struct heap *heap, size_t size, uint32_t place)
{
    (void)heap, (void)size, (void)place;
    return NULL;
}

void heap_shrink_by_place(struct heap *heap)
{
    (void)heap;
}

void heap_drain_by_place(struct heap *heap)
{
    (void)heap;
}

void big_cache_check(const struct big_cache *cache)
{
    (void)cache;
}

bool site_begin(void)
{
    return false;
}

void site_take(struct slab *slab, size_t slices, const void *caller, bool hit,
               struct site_turn *turn)
{
    (void)slab, (void)slices, (void)caller, (void)hit, (void)turn;
}

struct heap *site_keeper(const struct slab *slab)
{
    (void)slab;
    return NULL;
}

void site_give_back(struct slab *slab)
{
    (void)slab;
}

void *large_allocate(size_t size, size_t alignment, bool *zero)
{
    (void)size, (void)alignment, (void)zero;
    return NULL;
}

void *large_allocate_to_grow(size_t size)
{
    (void)size;
    return NULL;
}

void large_free(struct slab *slab)
{
    page_heap_free(slab_index(slab), slab->slices);
}

bool learning_is_frozen(void)
{
    return false;
}

void learning_changed(const char *what, uint64_t before, uint64_t now)
{
    (void)what, (void)before, (void)now;
}

/* The share is 0, so that no thread keeps free runs of slices in its cache. A cached run can still
 * be accessed, so the model would not notice an access to a slab that was freed. */
uint32_t run_cache_share(uint32_t threads)
{
    (void)threads;
    return 0;
}

struct slab *run_cache_evict(struct run_cache *cache)
{
    (void)cache;
    return NULL;
}

void run_cache_check(const struct run_cache *cache)
{
    (void)cache;
}

void *large_move(struct slab *slab, size_t size)
{
    (void)slab, (void)size;
    return NULL;
}

void *large_reuse(struct slab *run, size_t slack)
{
    (void)run, (void)slack;
    model_checker_fail("large_reuse() is called, and no run is kept");
}

bool large_resize(struct slab *slab, size_t size)
{
    (void)slab, (void)size;
    return false;
}

size_t os_page_bytes(void)
{
    return 4096;
}

bool os_guard(void *at, size_t size)
{
    (void)at, (void)size;
    model_checker_fail("os_guard() is called by the plain allocator");
}

uint64_t os_random(void)
{
    model_checker_fail("os_random() is called, although the secret is set");
}

void broken(const char *what, const void *pointer)
{
    (void)pointer;
    model_checker_fail("%s", what);
}

void broken_by_misuse(const char *what, const void *pointer, const char *where, size_t bytes)
{
    (void)pointer, (void)where, (void)bytes;
    model_checker_fail("%s", what);
}

/* --- names ------------------------------------------------------------------------------------ */

const char *model_checker_thread_name(unsigned thread)
{
    static const char *const names[] = {"A", "B", "C", "D"};
    return names[thread];
}

static unsigned run_number(size_t index)
{
    unsigned i = 0;
    while (i < stubs.run_count && index - stubs.runs[i].first >= stubs.runs[i].slices)
        i++;
    return i;
}

static const char *field_name(size_t offset)
{
    static const struct {
        size_t offset;
        const char *name;
    } fields[] = {
        {offsetof(struct slab, owner), "owner"},   {offsetof(struct slab, free), "free"},
        {offsetof(struct slab, until), "until"},   {offsetof(struct slab, rest), "rest"},
        {offsetof(struct slab, posted), "posted"}, {offsetof(struct slab, next), "next"},
        {offsetof(struct slab, prev), "prev"},     {offsetof(struct slab, carved), "carved"},
        {offsetof(struct slab, class), "class"},   {offsetof(struct slab, kind), "kind"},
    };
    for (size_t i = 0; i < COUNT_OF(fields); i++)
        if (fields[i].offset == offset)
            return fields[i].name;
    return "record";
}

void model_checker_describe(const void *address, char *name, size_t bytes)
{
    uintptr_t at = (uintptr_t)address;
    if (at - (region.base - REGION_SLICE_SPAN) < SLICES * RECORD_BYTES) {
        size_t index = region_record_index(address);
        snprintf(name, bytes, "slab %u's %s", run_number(index), field_name(at % RECORD_BYTES));
        return;
    }
    for (unsigned i = 0; i < MODEL_CHECKER_THREADS_MAX; i++) {
        const struct heap *heap = stubs.heaps[i];
        if (heap != NULL && at - (uintptr_t)heap < sizeof *heap) {
            bool lock = at - (uintptr_t)&heap->lock < sizeof heap->lock;
            if (lock)
                snprintf(name, bytes, "the lock of %s's heap", model_checker_thread_name(i));
            else
                snprintf(name, bytes, "%s's heap, byte %zu", model_checker_thread_name(i),
                         at - (uintptr_t)heap);
            return;
        }
    }
    if (region_index(address) < SLICES) {
        size_t index = region_index(address);
        unsigned number = run_number(index);
        if (number < stubs.run_count) {
            size_t offset = at - (uintptr_t)region_address(stubs.runs[number].first);
            size_t block_bytes = size_class_bytes(slab_at(stubs.runs[number].first)->class);
            snprintf(name, bytes, "block %zu of slab %u", offset / block_bytes, number);
            return;
        }
    }
    snprintf(name, bytes, "%p", address);
}

void model_checker_describe_value(const void *address, uint64_t value, char *text, size_t bytes)
{
    static const char *const states[] = {"CURRENT", "PARKED", "FULL", "CLAIMED"};
    uintptr_t at = (uintptr_t)address;
    snprintf(text, bytes, "%llu", (unsigned long long)value);
    if (at - (region.base - REGION_SLICE_SPAN) >= SLICES * RECORD_BYTES)
        return;
    if (at % RECORD_BYTES == offsetof(struct slab, posted) &&
        remote_state_of(value) < COUNT_OF(states)) {
        snprintf(text, bytes, "%s, %u posted", states[remote_state_of(value)],
                 remote_count_of(value));
    } else if (at % RECORD_BYTES == offsetof(struct slab, owner)) {
        snprintf(text, bytes, "%s", value == 0 ? "nobody" : "somebody");
        for (unsigned i = 0; i < MODEL_CHECKER_THREADS_MAX; i++)
            if (value == (uintptr_t)stubs.heaps[i] && value != 0)
                snprintf(text, bytes, "%s", model_checker_thread_name(i));
    }
}

/* --- guarded blocks, which are off ------------------------------------------------------------ */

uint32_t guarded_every;
uintptr_t guarded_start;
size_t guarded_bytes;

void guarded_begin(uint32_t every)
{
    (void)every;
}

void guarded_count(unsigned class, uint32_t count)
{
    (void)class, (void)count;
}

void *guarded_next(unsigned class, size_t size)
{
    (void)class, (void)size;
    return NULL;
}

void guarded_free(void *p)
{
    (void)p;
}

size_t guarded_size(const void *p)
{
    (void)p;
    return 0;
}
