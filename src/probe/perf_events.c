#include "probe/perf_events.h"

#include "probe/direct_syscall.h"
#include "probe/session.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/ioctl.h>

static const struct {
    const char *name;
    uint32_t type;
    uint64_t config;
} known[PROFILE_EVENTS] = {
    [PROFILE_CYCLES] = {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    [PROFILE_INSTRUCTIONS] = {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    [PROFILE_BRANCH_MISSES] = {"branch-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES},
    [PROFILE_CACHE_MISSES] = {"cache-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
    [PROFILE_DTLB_MISSES] = {"dTLB-load-misses", PERF_TYPE_HW_CACHE,
                             PERF_COUNT_HW_CACHE_DTLB | PERF_COUNT_HW_CACHE_OP_READ << 8 |
                                 PERF_COUNT_HW_CACHE_RESULT_MISS << 16},
    [PROFILE_PAGE_FAULTS] = {"page-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS},
};

static uint32_t wanted[PROFILE_SLOTS]; /* same values as in profile_head.events */

/* One bit for each descriptor of an event that this process opened, from DIRECT_HIGH on. */
enum { NOTED = 1 << 16 };
static _Atomic uint64_t opened[NOTED / 64];

/* --- wanted events ---------------------------------------------------------------------------- */

/* Returns 1 + enum profile_event, or 0 if no event has that name. */
static uint32_t event_of(const char *name, size_t length)
{
    for (uint32_t event = 0; event < PROFILE_EVENTS; event++)
        if (strlen(known[event].name) == length && strncmp(known[event].name, name, length) == 0)
            return 1 + event;
    return 0;
}

static void choose(void)
{
    const char *name = session_option("CAIRN_PROBE_COUNTERS");
    for (size_t slot = 0; name != NULL && slot < PROFILE_SLOTS; slot++) {
        const char *end = strchrnul(name, ',');
        wanted[slot] = event_of(name, (size_t)(end - name));
        name = *end == ',' ? end + 1 : NULL;
    }
}

void perf_events_begin(void)
{
    static bool chosen;
    if (!chosen)
        choose();
    chosen = true;
    memcpy(session.head->events, wanted, sizeof wanted);
}

/* --- a thread's group ------------------------------------------------------------------------- */

static long open_event(uint32_t event, long leader)
{
    struct perf_event_attr attr = {
        .type = known[event].type,
        .size = sizeof attr,
        .config = known[event].config,
        .read_format =
            PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
        .exclude_kernel = 1,
        .exclude_hv = 1,
    };
    long fd = direct_call(SYS_perf_event_open, (long)&attr, 0, -1, leader, PERF_FLAG_FD_CLOEXEC, 0);
    return direct_failed(fd) ? fd : direct_move_up(fd);
}

/* Returns the number of events in the thread's group. me->counters holds their descriptors in the
 * order of their slots. */
static unsigned group_size(const struct thread_state *me)
{
    return (unsigned)__builtin_popcount(me->counter_slots);
}

static _Atomic uint64_t *word_of(int fd)
{
    return &opened[(fd - DIRECT_HIGH) / 64];
}

static uint64_t bit_of(int fd)
{
    return UINT64_C(1) << (fd - DIRECT_HIGH) % 64;
}

static void note_refusal(unsigned slot, uint32_t error)
{
    uint32_t none = 0;
    /* EMFILE is true of some threads only, so it does not replace a reason that is true of all. */
    if (error == EMFILE)
        __atomic_compare_exchange_n(&session.head->event_errnos[slot], &none, error, false,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    else
        __atomic_store_n(&session.head->event_errnos[slot], error, __ATOMIC_RELAXED);
}

static void open_group(struct thread_state *me)
{
    for (unsigned slot = 0; slot < PROFILE_SLOTS; slot++) {
        if (wanted[slot] == 0)
            continue;
        long fd = open_event(wanted[slot] - 1, me->counter_slots != 0 ? me->counters[0] : -1);
        if (direct_failed(fd)) {
            note_refusal(slot, (uint32_t)-fd);
            if (fd == -EMFILE) {
                perf_events_disarm(me);
                return;
            }
            continue;
        }
        if (fd < DIRECT_HIGH + NOTED)
            atomic_fetch_or_explicit(word_of((int)fd), bit_of((int)fd), memory_order_relaxed);
        me->counters[group_size(me)] = (int)fd;
        me->counter_slots |= (uint8_t)(1u << slot);
    }
}

void perf_events_arm(struct thread_state *me)
{
    me->counter_slots = 0;
    if (!direct_forbidden)
        open_group(me);
}

/* Returns false if the program has closed the descriptor, or has given its number to a file of its
 * own. */
static bool is_event(int fd)
{
    uint64_t id;
    return !direct_failed(direct_call3(SYS_ioctl, fd, PERF_EVENT_IOC_ID, (long)&id));
}

static void close_event(int fd)
{
    if (fd < DIRECT_HIGH + NOTED)
        atomic_fetch_and_explicit(word_of(fd), ~bit_of(fd), memory_order_relaxed);
    if (is_event(fd))
        direct_call3(SYS_close, fd, 0, 0);
}

void perf_events_disarm(struct thread_state *me)
{
    for (unsigned i = 0; i < group_size(me) && !direct_forbidden; i++)
        close_event(me->counters[i]);
    me->counter_slots = 0;
}

void perf_events_forked(void)
{
    for (size_t i = 0; i < COUNT_OF(opened) && !direct_forbidden; i++) {
        uint64_t bits = atomic_load_explicit(&opened[i], memory_order_relaxed);
        for (; bits != 0; bits &= bits - 1)
            close_event(DIRECT_HIGH + (int)(i * 64) + __builtin_ctzll(bits));
    }
}

/* --- reading a group -------------------------------------------------------------------------- */

/* The kernel's read format for a group of events. */
struct group {
    uint64_t count;
    uint64_t enabled_ns;
    uint64_t running_ns;
    uint64_t values[PROFILE_SLOTS];
};

static bool read_group(const struct thread_state *me, struct group *group)
{
    long bytes = (long)(offsetof(struct group, values) + group_size(me) * sizeof(uint64_t));
    return direct_call3(SYS_read, me->counters[0], (long)group, bytes) == bytes;
}

/* Replaces each number x in me->events by v - x, where v is the group's present value. Before the
 * operation all x are 0, so the first call stores v. After the operation the second call yields the
 * difference. */
static void subtract_from(struct thread_state *me, const struct group *group)
{
    unsigned place = 0;
    for (unsigned slot = 0; slot < PROFILE_SLOTS; slot++)
        me->events[slot] =
            (me->counter_slots >> slot & 1) != 0 ? group->values[place++] - me->events[slot] : 0;
    me->events_missed = group->enabled_ns - group->running_ns - me->events_missed;
}

static bool begin(struct thread_state *me)
{
    struct group group;
    memset(me->events, 0, sizeof me->events);
    me->events_missed = 0;
    if (!read_group(me, &group))
        return false;
    subtract_from(me, &group);
    return true;
}

static bool end(struct thread_state *me)
{
    struct group group;
    if (!read_group(me, &group))
        return false;
    subtract_from(me, &group);
    return me->events_missed == 0;
}

/* Counts the events of an empty operation and stores them in the file. Each stored number is the
 * least of nine tries. In user mode the tries differ little, and disturbances only add events. A
 * try that fails is left out, because other groups may use the processor's counters for a while.
 * Returns false if all tries failed. */
static bool measure_nothing(struct thread_state *me)
{
    enum { TRIES = 9 };
    uint64_t least[PROFILE_SLOTS];
    bool measured = false;
    memset(least, 0xff, sizeof least);
    for (int i = 0; i < TRIES; i++) {
        if (!begin(me) || !end(me))
            continue;
        measured = true;
        for (unsigned slot = 0; slot < PROFILE_SLOTS; slot++)
            if (me->events[slot] < least[slot])
                least[slot] = me->events[slot];
    }
    if (!measured)
        return false;
    memcpy(session.head->event_nothing, least, sizeof least);
    session.head->has_event_nothing = 1;
    return true;
}

/* Returns true if the events of an empty operation are known. Otherwise measures them, at most a
 * thousand times in a process, because a group that never counts would make each operation slow. */
static bool knows_nothing(struct thread_state *me)
{
    enum { MEASURES_MOST = 1000 };
    static uint32_t measures;
    if (LIKELY(session.head->has_event_nothing != 0))
        return true;
    return __atomic_fetch_add(&measures, 1, __ATOMIC_RELAXED) < MEASURES_MOST &&
           measure_nothing(me);
}

bool perf_events_before(struct thread_state *me)
{
    if (!is_event(me->counters[0])) {
        me->counter_slots = 0;
        return false;
    }
    return knows_nothing(me) && begin(me);
}

bool perf_events_after(struct thread_state *me)
{
    return end(me);
}
