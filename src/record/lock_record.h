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
    LOCK_EARLY = 64,              /* see lock_record.early_sections */

    /* The kind of a lock that the allocator builds itself on a futex. The other kinds, which are
     * smaller numbers, are those of enum profile_lock. */
    LOCK_FUTEX = 16,
};

struct lock_record {
    uint64_t address;
    uint64_t kind;
    uint64_t taken;          /* how often a thread took the lock */
    uint64_t contended;      /* how often a thread waited for the lock */
    uint64_t wait_ticks;     /* total time of these waits */
    uint64_t max_wait_ticks; /* time of the longest wait */
    uint64_t refused;        /* calls of trylock that failed */

    /* Timed critical sections of the lock. The `early` ones are those of the first LOCK_EARLY
     * sections: nearly all are timed. Of the later sections, a random sample is timed. A section is
     * not timed if its thread is already timing a section of another lock. */
    uint64_t early_sections;
    uint64_t early_section_ticks;
    uint64_t sections;
    uint64_t section_ticks;
    /* Sum of the squared times of the later sections. A time above 2^28 ticks counts as 2^28. */
    uint64_t section_ticks_squared;

    uint64_t futex_waits;      /* system calls that wait at this address */
    uint64_t futex_wait_ticks; /* total time of these calls */
    uint64_t futex_wakes;      /* system calls that wake threads at this address */
};

/* A program or library that was loaded when the process began. */
struct lock_object {
    uint64_t start;                    /* first address of the mapped file; 0: unused entry */
    uint64_t end;                      /* first address behind it */
    uint64_t base;                     /* address in memory - address in the file's symbol table */
    char path[LOCK_OBJECT_PATH_BYTES]; /* empty for the program */
};

struct lock_records {
    uint64_t beyond; /* number of events of locks that found no free entry */
    struct lock_object objects[LOCK_OBJECTS];
    struct lock_record records[LOCK_RECORDS];
};

#endif
