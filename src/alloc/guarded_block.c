#include "alloc/guarded_block.h"

#include "alloc/code_address.h"
#include "alloc/hardening.h"
#include "base/loaded.h"
#include "base/random.h"
#include "os/lock.h"
#include "os/os.h"

#include <link.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { CLASSES = 64 };

enum slot_state { SLOT_NEW, SLOT_LIVE, SLOT_FREED };

/* A place in the program: the return addresses of its calls, innermost first. */
struct stack {
    int count;
    void *frames[GUARDED_FRAMES];
};

/* A page, and the block that it has or had last. */
struct slot {
    unsigned char *block;
    size_t size;
    enum slot_state state;
    struct stack allocated;
    struct stack freed;
};

uint32_t guarded_every;
uintptr_t guarded_start;
size_t guarded_bytes;

static struct lock lock; /* guards the slots and all below */
static struct slot *slots;
static struct random random;
static uint32_t fresh;                 /* slots that were ever used */
static uint32_t queue[GUARDED_BLOCKS]; /* freed slots, oldest first, from `oldest` on */
static uint32_t oldest;
static uint32_t queued;
static _Atomic int32_t turns[CLASSES]; /* calls until the next guarded block */
static struct sigaction before;        /* the program's handler of SIGSEGV when we began */

/* --- stacks ----------------------------------------------------------------------------------- */

/* Glibc and some other C libraries have this function. */
extern int backtrace(void **frames, int count) __attribute__((weak));

/* True while this thread reads its stack, which may allocate. */
static _Thread_local bool is_reading __attribute__((tls_model("initial-exec")));

static _Atomic unsigned can_read; /* not 0 after guarded_prepare_stacks() */

static void read_stack(struct stack *stack)
{
    stack->count = 0;
    if (backtrace == NULL || is_reading ||
        atomic_load_explicit(&can_read, memory_order_relaxed) == 0)
        return;
    is_reading = true;
    stack->count = backtrace(stack->frames, GUARDED_FRAMES);
    is_reading = false;
}

void guarded_prepare_stacks(void)
{
    atomic_store_explicit(&can_read, guarded_start != 0, memory_order_relaxed);
    struct stack first;
    read_stack(&first);
}

static void say(struct text *text)
{
    text_add_char(text, '\n');
    os_say(text->data, text->length);
}

static void say_stack(const char *what, const struct stack *stack)
{
    char line[1024];
    struct text text = text_over(line, sizeof line - 1);
    text_add(&text, "cairn:   ");
    text_add(&text, what);
    for (int i = 0; i < stack->count; i++) {
        text_add(&text, i == 0 ? " " : " < ");
        code_address_add(&text, stack->frames[i]);
    }
    if (stack->count == 0)
        text_add(&text, " an unknown place, because no stack could be read then");
    /* The last byte is for the end of the line, even if frames did not fit. */
    text.truncated = false;
    text.capacity = sizeof line;
    say(&text);
}

/* Writes the report of a misuse at `p`, which lies in the page of `slot` or in a guard beside
 * it. */
static void report(const char *what, const void *p, const struct slot *slot)
{
    char line[256];
    struct text text = text_over(line, sizeof line);
    text_add(&text, "cairn: ");
    text_add(&text, what);
    text_add(&text, ": ");
    text_add_hex(&text, (uintptr_t)p);
    if (slot != NULL && slot->state != SLOT_NEW) {
        ptrdiff_t offset = (const unsigned char *)p - slot->block;
        text_add(&text, ", byte ");
        text_add_signed(&text, offset);
        text_add(&text, " of a guarded block of ");
        text_add_unsigned(&text, slot->size);
        text_add(&text, slot->size == 1 ? " byte" : " bytes");
    }
    say(&text);
    if (slot == NULL || slot->state == SLOT_NEW)
        return;
    say_stack("allocated at", &slot->allocated);
    if (slot->state == SLOT_FREED)
        say_stack("freed at", &slot->freed);
}

/* Reports a misuse, and ends the program. The caller holds the lock. This function drops it,
 * because the report takes the loader's lock, whose holder may allocate and wait for our lock. */
static _Noreturn void end_program(const char *what, const void *p, const struct slot *slot)
{
    struct slot copy = slot != NULL ? *slot : (struct slot){0};
    lock_drop(&lock);
    report(what, p, &copy);
    os_die("", 0);
}

/* --- pages ------------------------------------------------------------------------------------ */

/* Each page lies between two guards: page number 2 i + 1 of the range is slot i. */
static unsigned char *page_of(uint32_t number)
{
    return (unsigned char *)guarded_start + (2 * (size_t)number + 1) * os_page_bytes();
}

static size_t page_number(const void *p)
{
    return ((uintptr_t)p - guarded_start) / os_page_bytes();
}

/* Returns the slot whose page contains `p`. Returns NULL for a guard. */
static struct slot *slot_at(const void *p)
{
    size_t page = page_number(p);
    return page % 2 == 1 ? &slots[page / 2] : NULL;
}

/* Returns the slot to which a bad access at `p` belongs. On a page of a slot it is this slot. On a
 * guard it is the slot of the nearer neighbouring page, if that slot was ever used, or else the
 * slot of the other one. */
static const struct slot *slot_near(const void *p)
{
    size_t page = page_number(p);
    if (page % 2 == 1)
        return &slots[page / 2];
    const struct slot *left = page > 0 ? &slots[page / 2 - 1] : NULL;
    const struct slot *right = page / 2 < GUARDED_BLOCKS ? &slots[page / 2] : NULL;
    size_t in_page = (uintptr_t)p % os_page_bytes();
    bool is_left = in_page < os_page_bytes() / 2;
    const struct slot *near = is_left ? left : right;
    return near != NULL && near->state != SLOT_NEW ? near : is_left ? right : left;
}

static void fill_beside(struct slot *slot, unsigned char *page)
{
    memset(page, HARDENING_FILL, (size_t)(slot->block - page));
    unsigned char *behind = slot->block + slot->size;
    memset(behind, HARDENING_FILL, (size_t)(page + os_page_bytes() - behind));
}

static bool is_filled_beside(const struct slot *slot)
{
    const unsigned char *page = page_of((uint32_t)(slot - slots));
    for (const unsigned char *at = page; at < page + os_page_bytes(); at++)
        if ((at < slot->block || at >= slot->block + slot->size) && *at != HARDENING_FILL)
            return false;
    return true;
}

/* Returns the number of a page for a new block. Returns GUARDED_BLOCKS if all are in use. */
static uint32_t take_slot(void)
{
    if (fresh < GUARDED_BLOCKS)
        return fresh++;
    if (queued == 0)
        return GUARDED_BLOCKS;
    uint32_t number = queue[oldest];
    oldest = (oldest + 1) % GUARDED_BLOCKS;
    queued--;
    return number;
}

static void put_slot(uint32_t number)
{
    queue[(oldest + queued++) % GUARDED_BLOCKS] = number;
}

/* --- faults ----------------------------------------------------------------------------------- */

/* Reports the fault and lets the former handler, or the kernel, see it once more. Only the first
 * thread reports. A signal that a process has sent is no fault, and is passed on unreported. */
static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code <= 0) {
        sigaction(signal, &before, NULL);
        raise(signal);
        return;
    }
    static _Atomic unsigned reported; /* no bool: RISC-V cannot exchange a byte */
    const void *p = info->si_addr;
    if (guarded_has(p) && atomic_exchange(&reported, 1) == 0) {
        const struct slot *slot = slot_near(p);
        report(slot != NULL && slot->state == SLOT_FREED ? "a block is used after it was freed"
                                                         : "an access beyond a block",
               p, slot);
    }
    sigaction(signal, &before, NULL);
}

void guarded_begin(uint32_t every)
{
    size_t bytes = (2 * (size_t)GUARDED_BLOCKS + 1) * os_page_bytes();
    size_t records =
        (GUARDED_BLOCKS * sizeof(struct slot) + os_page_bytes() - 1) & ~(os_page_bytes() - 1);
    char *start = os_map(bytes, 1, 0);
    if (start == NULL)
        return;
    slots = os_map(records, 1, 0);
    if (slots == NULL || !os_guard(start, bytes))
        return;
    guarded_start = (uintptr_t)start;
    guarded_bytes = bytes;
    random = random_of(os_random() ^ (uintptr_t)start);
    for (int i = 0; i < CLASSES; i++)
        atomic_store_explicit(&turns[i], (int32_t)random_below(&random, 2 * (uint64_t)every - 1),
                              memory_order_relaxed);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, &action, &before);
    guarded_every = every;
    if (environ != NULL) /* libc is initialised */
        guarded_prepare_stacks();
}

/* Called by dl_iterate_phdr() for each object. Returns whether it contains the former handler. */
static int has_handler(struct dl_phdr_info *object, size_t bytes, void *unused)
{
    (void)bytes, (void)unused;
    return loaded_contains(object, (uintptr_t)before.sa_sigaction);
}

void guarded_end(void)
{
    struct sigaction now;
    if (!guarded_is_on() || sigaction(SIGSEGV, NULL, &now) != 0 || now.sa_sigaction != on_fault)
        return;
    bool is_code = before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN;
    if (is_code && dl_iterate_phdr(has_handler, NULL) == 0)
        before = (struct sigaction){.sa_handler = SIG_DFL}; /* its library was closed */
    sigaction(SIGSEGV, &before, NULL);
}

/* --- blocks ----------------------------------------------------------------------------------- */

void guarded_count(unsigned class, uint32_t count)
{
    atomic_fetch_sub_explicit(&turns[class], (int32_t)count, memory_order_relaxed);
}

void *guarded_next(unsigned class, size_t size)
{
    if (LIKELY(atomic_load_explicit(&turns[class], memory_order_relaxed) > 0) || lock_is_unsafe())
        return NULL;
    lock_take(&lock);
    int32_t turn = 1 + (int32_t)random_below(&random, 2 * (uint64_t)guarded_every - 1);
    lock_drop(&lock);
    /* Adds, so that calls which were counted meanwhile are not lost. */
    int32_t left = atomic_fetch_add_explicit(&turns[class], turn, memory_order_relaxed);
    if (left < -(int32_t)guarded_every)
        atomic_store_explicit(&turns[class], 0, memory_order_relaxed);
    return guarded_allocate(size);
}

/* Places a block on a page that can be accessed. The lock is held. */
static void *place(uint32_t number, size_t size, const struct stack *stack)
{
    struct slot *slot = &slots[number];
    unsigned char *page = page_of(number);
    bool at_end = (random_next(&random) & 1) != 0;
    slot->block = at_end ? page + os_page_bytes() - ((size + 15) & ~(size_t)15) : page;
    slot->size = size;
    slot->allocated = *stack;
    slot->freed.count = 0;
    slot->state = SLOT_LIVE;
    memset(slot->block, 0, size);
    fill_beside(slot, page);
    return slot->block;
}

void *guarded_allocate(size_t size)
{
    if (size - 1 >= os_page_bytes() || is_reading)
        return NULL;
    struct stack stack;
    read_stack(&stack);
    void *block = NULL;
    lock_take(&lock);
    uint32_t number = take_slot();
    if (number < GUARDED_BLOCKS) {
        if (os_unguard(page_of(number), os_page_bytes()))
            block = place(number, size, &stack);
        else
            put_slot(number);
    }
    lock_drop(&lock);
    return block;
}

/* Returns the slot of a live block. Ends the program if `p` is not a live block. The lock is
 * held. */
static struct slot *slot_of_live(const void *p)
{
    struct slot *slot = slot_at(p);
    if (slot != NULL && slot->state == SLOT_FREED && p == slot->block)
        end_program("a block is used that was freed before", p, slot);
    if (slot == NULL || slot->state != SLOT_LIVE || p != slot->block)
        end_program("a pointer that is not the start of a block", p, slot_near(p));
    if (!is_filled_beside(slot))
        end_program("a write beside a block", p, slot);
    return slot;
}

void guarded_free(void *p)
{
    if (lock_is_unsafe())
        return; /* the block stays allocated */
    struct stack stack;
    read_stack(&stack);
    lock_take(&lock);
    struct slot *slot = slot_of_live(p);
    uint32_t number = (uint32_t)(slot - slots);
    slot->freed = stack;
    slot->state = SLOT_FREED;
    if (os_guard(page_of(number), os_page_bytes()))
        put_slot(number); /* a page without a guard is not used again */
    lock_drop(&lock);
}

size_t guarded_size(const void *p)
{
    if (lock_is_unsafe())
        return slot_at(p) != NULL ? slot_at(p)->size : 0;
    lock_take(&lock);
    size_t size = slot_of_live(p)->size;
    lock_drop(&lock);
    return size;
}

void guarded_lock(void)
{
    lock_take(&lock);
}

void guarded_unlock(void)
{
    lock_drop(&lock);
}

bool guarded_has_taken_lock(void)
{
    return lock_is_taken(&lock);
}
