#include "probe/live.h"

#include "probe/direct_syscall.h"
#include "probe/futex_lock.h"
#include "probe/next.h"
#include "probe/own_memory.h"

uint8_t live_way;

/* Sum of all bytes that were folded (live.h). The sum is below 0 if the program freed blocks whose
 * allocation the probe did not see. */
static _Atomic int64_t total;
static _Atomic int64_t granted; /* sum of the steps of all threads */
static _Atomic bool noting;     /* a thread writes head->live_noted_* */
static uint64_t noted_samples;  /* watched_samples() at the last such write */

/* The list of all balances, and the list of unused ones. The list of all balances only grows, so
 * that readers need no lock. */
static struct futex_lock lock;
static _Atomic(struct live_thread *) all;
static struct live_thread *vacant;

static int64_t not_folded(const struct live_thread *one)
{
    return (int64_t)(one->balance - one->step);
}

/* --- the peak --------------------------------------------------------------------------------- */

static struct live requested_of(int64_t usable)
{
    struct live live = {.usable = usable > 0 ? (uint64_t)usable : 0};
    struct watched_requested requested = watched_requested();
    live.bytes = (uint64_t)((double)live.usable * requested.share);
    live.error = (uint64_t)((double)live.usable * requested.error);
    return live;
}

/* Writes into the file the number of requested bytes that belongs to `now` live usable bytes, at or
 * near the peak. The share of the requested bytes changes slowly, so it is computed again only if
 * `now` is higher by one part in NEAR_ONE_IN, or if twice as many allocations were sampled and
 * `now` is near the peak. A program that reaches its peak early would otherwise be judged by its
 * first few allocations. */
static void note_requested(struct profile_head *head, int64_t now)
{
    enum { NEAR_ONE_IN = 32 };
    uint64_t peak = head->live_peak_usable, noted = head->live_noted_usable;
    uint64_t live_now = now > 0 ? (uint64_t)now : 0, samples = watched_samples();
    bool higher = live_now > noted + noted / NEAR_ONE_IN;
    bool near = live_now >= peak - peak / NEAR_ONE_IN;
    if (live_now == 0 || !(higher || (near && samples >= 2 * noted_samples)) ||
        atomic_exchange_explicit(&noting, true, memory_order_acquire))
        return;
    struct live live = requested_of(now);
    head->live_noted_bytes = live.bytes;
    head->live_noted_error = live.error;
    head->live_noted_usable = live.usable;
    noted_samples = samples;
    atomic_store_explicit(&noting, false, memory_order_release);
}

static void raise_peak(int64_t now)
{
    struct profile_head *head = session.head;
    if (head == NULL)
        return;
    if (now > (int64_t)head->live_peak_usable)
        session_raise(&head->live_peak_usable, (uint64_t)now);
    note_requested(head, now);
}

/* --- folding ---------------------------------------------------------------------------------- */

/* The largest allowed sum of the steps of all threads, in bytes, and the number of threads. */
struct budget {
    int64_t bytes;
    int64_t threads;
};

static struct budget budget_now(void)
{
    const struct profile_head *head = session.head;
    if (head == NULL)
        return (struct budget){.bytes = 0, .threads = 1};
    int64_t threads = (int64_t)__atomic_load_n(&head->threads_live, __ATOMIC_RELAXED);
    threads = threads > 0 ? threads : 1;
    int64_t least = LIVE_LEAST * (threads < LIVE_THREADS ? threads : LIVE_THREADS);
    int64_t part = (int64_t)(head->live_peak_usable / LIVE_ONE_IN);
    return (struct budget){.bytes = part > least ? part : least, .threads = threads};
}

/* Gives the thread an equal part of the budget as its step, or less if other threads still have
 * more than their part. */
static void choose_step(struct live_thread *mine)
{
    struct budget budget = budget_now();
    int64_t part = budget.bytes / budget.threads;
    int64_t had = (int64_t)mine->step;
    int64_t before = atomic_load_explicit(&granted, memory_order_relaxed);
    int64_t step, after;
    do {
        int64_t left = budget.bytes - (before - had);
        step = part < left ? part : left > 0 ? left : 0;
        after = before - had + step;
    } while (!atomic_compare_exchange_weak_explicit(&granted, &before, after, memory_order_relaxed,
                                                    memory_order_relaxed));
    mine->balance += (uint64_t)(step - had);
    mine->step = (uint64_t)step;
    mine->limit = 2 * (uint64_t)step;
    if (session.head != NULL)
        session_raise(&session.head->live_granted, (uint64_t)after);
}

/* Folds a balance and returns the new total. */
static int64_t fold(struct live_thread *mine)
{
    int64_t change = not_folded(mine);
    mine->balance -= (uint64_t)change;
    return atomic_fetch_add_explicit(&total, change, memory_order_relaxed) + change;
}

/* A signal handler may interrupt this function. The guard makes sure that the handler's operations
 * do not change the balance meanwhile. */
void live_fold(struct thread_state *me)
{
    uint8_t guard = me->guard;
    me->guard = THREAD_INSIDE;
    raise_peak(fold(me->live));
    choose_step(me->live);
    me->guard = guard;
}

void live_estimate(void)
{
    struct profile_head *head = session.head;
    if (live_way != LIVE_ESTIMATED || head == NULL)
        return;
    session_add(&head->live_looks, 1);
    if (watched_bytes() <= head->live_noted_bytes ||
        atomic_exchange_explicit(&noting, true, memory_order_acquire))
        return;
    struct watched_live watched = watched_live();
    head->live_noted_bytes = watched.bytes;
    head->live_noted_error = watched.error;
    atomic_store_explicit(&noting, false, memory_order_release);
}

/* --- threads ---------------------------------------------------------------------------------- */

void live_begin(void)
{
    static bool chosen;
    if (chosen)
        return;
    chosen = true;
    bool exact = session_option_is("CAIRN_PROBE_LIVE", "exact");
    bool estimated = session_option_is("CAIRN_PROBE_LIVE", "estimated");
    if (session.measures && session.of_glibc && !estimated)
        live_way = LIVE_BY_HEADER;
    else if (session.measures && exact)
        live_way = LIVE_BY_CALL;
}

static void give_up(void)
{
    live_way = LIVE_ESTIMATED;
    if (session.head != NULL)
        session.head->live_way = LIVE_ESTIMATED;
}

/* Returns an unused balance, or NULL if there is no memory. A mapping is twice as long as the one
 * before it, up to a limit, because own_memory.h remembers few mappings. */
static struct live_thread *take(void)
{
    enum { FIRST = 4096, MOST = 16 * FIRST };
    static size_t bytes = FIRST;
    futex_lock_take(&lock);
    struct live_thread *one = vacant;
    if (one == NULL && (one = own_memory_map(bytes)) != NULL) {
        size_t count = bytes / sizeof *one;
        for (size_t i = 0; i < count; i++) {
            one[i].vacant = i + 1 < count ? &one[i + 1] : NULL;
            one[i].next = atomic_load_explicit(&all, memory_order_relaxed);
            atomic_store_explicit(&all, &one[i], memory_order_release /* live_now() */);
        }
        bytes = bytes < MOST ? 2 * bytes : MOST;
    }
    vacant = one != NULL ? one->vacant : NULL;
    futex_lock_drop(&lock);
    return one;
}

void live_thread_begin(struct thread_state *me)
{
    if (live_way == LIVE_ESTIMATED)
        return;
    if (me->live == NULL && (me->live = take()) == NULL) {
        give_up();
        return;
    }
    session.head->live_way = live_way;
    raise_peak(atomic_load_explicit(&total, memory_order_relaxed));
    choose_step(me->live);
}

void live_thread_end(struct thread_state *me)
{
    struct live_thread *mine = me->live;
    if (mine == NULL)
        return;
    me->live = NULL;
    raise_peak(fold(mine));
    atomic_fetch_sub_explicit(&granted, (int64_t)mine->step, memory_order_relaxed);
    mine->balance = mine->step = mine->limit = 0;
    futex_lock_take(&lock);
    mine->vacant = vacant;
    vacant = mine;
    futex_lock_drop(&lock);
}

void live_forked(struct thread_state *me)
{
    int64_t change = 0;
    vacant = NULL;
    for (struct live_thread *one = atomic_load(&all); one != NULL; one = one->next) {
        change += not_folded(one);
        one->balance = one->step = one->limit = 0;
        if (one == me->live)
            continue;
        one->vacant = vacant;
        vacant = one;
    }
    atomic_fetch_add(&total, change);
    atomic_store(&granted, 0);
    atomic_store(&noting, false);
    (void)futex_lock_reset(&lock);
}

/* --- slow paths ------------------------------------------------------------------------------- */

/* Asks the allocator for the size of a block. `asking` marks that the probe makes this call, so
 * that the time and the locks of the call do not count as the program's. The guard tells a signal
 * handler that the allocator may hold its locks. */
static size_t ask(struct thread_state *me, const void *block)
{
    uint8_t guard = me->guard;
    me->asking = true;
    if (guard == THREAD_OUTSIDE)
        me->guard = THREAD_INSIDE;
    size_t bytes = next.malloc_usable_size((void *)(uintptr_t)block);
    me->guard = guard;
    me->asking = false;
    return bytes;
}

/* Returns the size that the allocator reports, or `bytes` if it reports 0. gperftools does not know
 * the size of a block before its library is initialised. */
static size_t ask_or(struct thread_state *me, const void *block, size_t bytes)
{
    size_t usable = ask(me, block);
    return usable != 0 ? usable : bytes;
}

void live_add_slowly(struct thread_state *me, const void *block, size_t bytes)
{
    struct live_thread *mine = me->live;
    if (live_way == LIVE_ESTIMATED || mine == NULL)
        return;
    mine->balance += ask_or(me, block, bytes);
    if (mine->balance > mine->limit)
        live_fold(me);
}

void live_subtract_slowly(struct thread_state *me, const void *block)
{
    struct live_thread *mine = me->live;
    if (live_way == LIVE_ESTIMATED || mine == NULL)
        return;
    size_t bytes = ask(me, block);
    mine->balance -= bytes;
    if (mine->balance > mine->limit) /* a balance below 0 has wrapped */
        live_fold(me);
}

static size_t bytes_late(const void *block, size_t bytes)
{
    return live_way == LIVE_BY_HEADER ? live_header_bytes(block)
                                      : ask_or(&thread_state, block, bytes);
}

void live_add_late(const void *block, size_t bytes)
{
    if (live_way != LIVE_ESTIMATED)
        atomic_fetch_add_explicit(&total, (int64_t)bytes_late(block, bytes), memory_order_relaxed);
}

void live_subtract_late(const void *block)
{
    if (live_way != LIVE_ESTIMATED)
        atomic_fetch_sub_explicit(&total, (int64_t)bytes_late(block, 0), memory_order_relaxed);
}

void live_verify(const void *block, size_t usable)
{
    size_t read = live_way == LIVE_BY_HEADER ? live_header_bytes(block) : usable;
    if (read - usable > sizeof(size_t))
        give_up();
}

uint64_t live_counted(void)
{
    int64_t now = atomic_load_explicit(&total, memory_order_relaxed);
    return now > 0 ? (uint64_t)now : 0;
}

struct live live_now(void)
{
    if (live_way == LIVE_ESTIMATED) {
        struct watched_live watched = watched_live();
        return (struct live){
            .bytes = watched.bytes, .usable = watched.usable, .error = watched.error};
    }
    int64_t sum = atomic_load_explicit(&total, memory_order_relaxed);
    for (const struct live_thread *one = atomic_load_explicit(&all, memory_order_acquire);
         one != NULL; one = one->next)
        sum += not_folded(one);
    raise_peak(sum);
    return requested_of(sum);
}
