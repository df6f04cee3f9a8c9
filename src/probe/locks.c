/* locks.c - counts the pthread locks that the allocator takes. For the program's own locks the
 * functions only call libc.
 *
 * The probe calls the trylock function first. If the lock is free, this is the only call of libc.
 * If the lock is taken, the probe calls the lock function and times the wait. It also times
 * critical sections, from the lock to the unlock: nearly all of the first LOCK_EARLY sections of
 * each lock, and then one in SECTIONS_ONE_IN, chosen at random. The clock is read without fences,
 * because critical sections are long enough.
 */
#include "base/ticks.h"
#include "probe/lock_table.h"
#include "probe/next.h"
#include "probe/session.h"
#include "probe/thread_state.h"

#include <errno.h>

#define INTERPOSED __attribute__((visibility("default")))

enum { SECTIONS_ONE_IN = 64, CONTENDED_MAX = 1024 };

static _Atomic uintptr_t contended[CONTENDED_MAX];

/* Counts a lock when a thread waits for it for the first time. `contended` has the locks that were
 * counted: a hash table with open addressing, which is never emptied. At most CONTENDED_MAX locks
 * are counted. */
static void note_contended(const void *lock)
{
    size_t place = ((uintptr_t)lock * UINT64_C(0x9e3779b97f4a7c15)) >> 54;
    for (size_t i = 0; i < CONTENDED_MAX; i++) {
        uintptr_t empty = 0;
        _Atomic uintptr_t *slot = &contended[(place + i) % CONTENDED_MAX];
        if (atomic_load_explicit(slot, memory_order_relaxed) == (uintptr_t)lock)
            return;
        if (atomic_compare_exchange_strong(slot, &empty, (uintptr_t)lock)) {
            session_add(&session.head->contended_locks, 1);
            return;
        }
        if (empty == (uintptr_t)lock)
            return;
    }
}

/* Returns true if the lock counts: the thread is in an operation of the program's. */
static inline bool is_inside(const struct thread_state *me)
{
    return me->guard == THREAD_INSIDE && me->counts != NULL && session.head != NULL && !me->asking;
}

/* Counts a lock that the thread has taken, and starts timing its critical section if that is
 * due. */
static void note_taken(struct thread_state *me, const void *lock, enum profile_lock kind)
{
    struct lock_record *record = lock_table_at((uintptr_t)lock, kind);
    bool early = record != NULL && record->taken < LOCK_EARLY;
    me->counts->locks[kind].taken++;
    if (LIKELY(record != NULL)) {
        if (kind == PROFILE_RWLOCK)
            session_add(&record->taken, 1);
        else
            record->taken++; /* not atomic: the thread has the lock */
    }
    if (me->section != NULL || (!early && me->until_section-- != 0))
        return;
    if (!early)
        me->until_section = (uint32_t)random_below(&me->random, 2 * SECTIONS_ONE_IN - 1);
    me->section_early = early;
    me->section_record = record;
    me->section = lock;
    me->section_ticks = ticks_now();
}

/* Adds a timed critical section to the entry of its lock. */
static void note_section(struct lock_record *record, bool early, uint64_t ticks)
{
    if (record == NULL)
        return;
    uint64_t limited = ticks < UINT64_C(1) << 28 ? ticks : UINT64_C(1) << 28;
    session_add(early ? &record->early_sections : &record->sections, 1);
    session_add(early ? &record->early_section_ticks : &record->section_ticks, ticks);
    if (!early)
        session_add(&record->section_ticks_squared, limited * limited);
}

/* Ends the timed critical section if `lock` is the lock of that section. */
static void note_released(struct thread_state *me, const void *lock, enum profile_lock kind)
{
    struct profile_lock_counts *counts = &me->counts->locks[kind];
    if (LIKELY(me->section != lock))
        return;
    uint64_t ticks = ticks_now() - me->section_ticks;
    me->section = NULL;
    note_section(me->section_record, me->section_early, ticks);
    if (me->section_early)
        return;
    counts->sections++;
    counts->section_ticks += ticks;
    if (ticks > counts->max_section_ticks)
        counts->max_section_ticks = ticks;
}

/* Takes a lock. `tried` is the result of the trylock function. If `tried` is EBUSY, this calls the
 * lock function `take`, which waits. Returns the result that the lock function would return. */
static int wait_for(struct thread_state *me, void *lock, enum profile_lock kind, int tried,
                    int (*take)(void *))
{
    struct profile_lock_counts *counts = &me->counts->locks[kind];
    if (tried == EBUSY) {
        uint64_t before = ticks_now();
        tried = take(lock);
        uint64_t ticks = ticks_now() - before;
        counts->contended++;
        counts->wait_ticks += ticks;
        if (ticks > counts->max_wait_ticks)
            counts->max_wait_ticks = ticks;
        note_contended(lock);
        struct lock_record *record = lock_table_at((uintptr_t)lock, kind);
        if (record != NULL) {
            session_add(&record->contended, 1);
            session_add(&record->wait_ticks, ticks);
            session_raise(&record->max_wait_ticks, ticks);
        }
    }
    if (tried == 0 || tried == EOWNERDEAD)
        note_taken(me, lock, kind);
    return tried;
}

/* Counts a trylock that failed. */
static void note_refused(struct thread_state *me, const void *lock, enum profile_lock kind)
{
    struct lock_record *record = lock_table_at((uintptr_t)lock, kind);
    me->counts->locks[kind].refused++;
    if (record != NULL)
        session_add(&record->refused, 1);
}

#define TAKE(name, lock_type, kind, trying)                                                        \
    INTERPOSED int name(lock_type *lock)                                                           \
    {                                                                                              \
        struct thread_state *me = &thread_state;                                                   \
        if (LIKELY(!is_inside(me)))                                                                \
            return NEXT_ALONE(name)((void *)lock);                                                 \
        return wait_for(me, (void *)lock, kind, NEXT_ALONE(trying)((void *)lock),                  \
                        NEXT_ALONE(name));                                                         \
    }

#define TRY(name, lock_type, kind)                                                                 \
    INTERPOSED int name(lock_type *lock)                                                           \
    {                                                                                              \
        struct thread_state *me = &thread_state;                                                   \
        int result = NEXT_ALONE(name)((void *)lock);                                               \
        if (LIKELY(!is_inside(me)))                                                                \
            return result;                                                                         \
        if (result == 0)                                                                           \
            note_taken(me, (void *)lock, kind);                                                    \
        else                                                                                       \
            note_refused(me, (void *)lock, kind);                                                  \
        return result;                                                                             \
    }

#define RELEASE(name, lock_type, kind)                                                             \
    INTERPOSED int name(lock_type *lock)                                                           \
    {                                                                                              \
        struct thread_state *me = &thread_state;                                                   \
        if (UNLIKELY(is_inside(me)))                                                               \
            note_released(me, (void *)lock, kind);                                                 \
        return NEXT_ALONE(name)((void *)lock);                                                     \
    }

TAKE(pthread_mutex_lock, pthread_mutex_t, PROFILE_MUTEX, pthread_mutex_trylock)
TRY(pthread_mutex_trylock, pthread_mutex_t, PROFILE_MUTEX)
RELEASE(pthread_mutex_unlock, pthread_mutex_t, PROFILE_MUTEX)
TAKE(pthread_spin_lock, pthread_spinlock_t, PROFILE_SPIN, pthread_spin_trylock)
TRY(pthread_spin_trylock, pthread_spinlock_t, PROFILE_SPIN)
RELEASE(pthread_spin_unlock, pthread_spinlock_t, PROFILE_SPIN)
TAKE(pthread_rwlock_rdlock, pthread_rwlock_t, PROFILE_RWLOCK, pthread_rwlock_tryrdlock)
TAKE(pthread_rwlock_wrlock, pthread_rwlock_t, PROFILE_RWLOCK, pthread_rwlock_trywrlock)
TRY(pthread_rwlock_tryrdlock, pthread_rwlock_t, PROFILE_RWLOCK)
TRY(pthread_rwlock_trywrlock, pthread_rwlock_t, PROFILE_RWLOCK)
RELEASE(pthread_rwlock_unlock, pthread_rwlock_t, PROFILE_RWLOCK)
