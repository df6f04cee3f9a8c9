/* lock_record.h - the locks that the allocator takes, each by itself: a part of the probe's file.
 *
 * cairn/profile/lock_records.py reads it. Always:
 *
 *     address == 0  =>  the entry is unused
 *     taken of a lock whose kind is LOCK_FUTEX is not known, and is 0
 *     early_sections <= LOCK_EARLY
 *     beyond == 0  =>  sum of taken over all records == sum of profile_lock_counts.taken over all
 *                      threads
 */
#ifndef CAIRN_RECORD_LOCK_RECORD_H
#define CAIRN_RECORD_LOCK_RECORD_H

#include "base/base.h"

enum {
    LOCK_RECORDS = 512, /* a power of two */
    LOCK_OBJECTS = 32,
    LOCK_OBJECT_PATH_BYTES = 232, /* with the NUL; longer paths are cut */
    LOCK_EARLY = 64,              /* the first sections of each lock are all timed */

    /* The kind of a lock of the allocator's own making. Smaller kinds are enum profile_lock. */
    LOCK_FUTEX = 16,
};

struct lock_record {
    uint64_t address;
    uint64_t kind;
    uint64_t taken;     /* by lock or trylock */
    uint64_t contended; /* locks that were not free: the thread waited */
    uint64_t wait_ticks;
    uint64_t max_wait_ticks;
    uint64_t refused; /* trylocks that failed */

    /* Timed critical sections: nearly all of the first LOCK_EARLY, and a random sample of the
     * others. Each thread times one section at a time. */
    uint64_t early_sections;
    uint64_t early_section_ticks;
    uint64_t sections;
    uint64_t section_ticks;
    uint64_t section_ticks_squared; /* sum of the squares; each number at most 2^28 */

    uint64_t futex_waits; /* system calls that wait at this address */
    uint64_t futex_wait_ticks;
    uint64_t futex_wakes;
};

/* A program or library that was loaded when the process began. */
struct lock_object {
    uint64_t start; /* it is mapped from here up to `end`; 0: unused entry */
    uint64_t end;
    uint64_t base;                     /* an address of the file lies at `base` + address */
    char path[LOCK_OBJECT_PATH_BYTES]; /* empty for the program */
};

struct lock_records {
    uint64_t beyond; /* events of locks for which there was no free entry */
    struct lock_object objects[LOCK_OBJECTS];
    struct lock_record records[LOCK_RECORDS];
};

#endif
