/* spare.h - memory in which a process is recorded if it cannot write a file of its own: the
 * interface between C and Python.
 *
 * cairn makes the spare memory (memfd_create(2)) before it starts a program, and every process of
 * the program inherits its descriptor. CAIRN_PROBE_SPARE has the number of the descriptor, the
 * device and inode by which the probe recognises the memory, and its number of windows:
 * "900:1:2051:131072". cairn/profile/spare.py reads it. Always:
 *
 *     window k lies at k * SPARE_WINDOW_BYTES, and k < number of windows
 *     a window begins with a struct spare_window, or it has only zeroes: nothing was written to it
 *     record_offsets[i] != 0  =>  at this offset from the window lies a file as in profile.h
 *
 * Every program image maps a window when it starts, and its forked children share the mapping. The
 * process number of the image selects the window, and several images may share one window. Memory
 * that was never written takes no space.
 */
#ifndef CAIRN_RECORD_SPARE_H
#define CAIRN_RECORD_SPARE_H

#include "base/base.h"

#include <assert.h>

#define SPARE_MAGIC "cairnwi2" /* ends in the version */

enum {
    SPARE_HEAD_BYTES = 64 << 10, /* a multiple of every page size */
    SPARE_WINDOW_BYTES = 12 << 20,
    SPARE_RECORDS = 64,
    SPARE_UNRECORDED = 64,
    SPARE_EXECUTED = 64,
    SPARE_KIND_BYTES = 16,
    SPARE_NAME_BYTES = 56, /* with the NUL; longer names are cut */
};

/* A process that could be recorded neither in a file nor here. */
struct spare_unrecorded {
    uint32_t process;
    uint32_t error; /* errno with which the process failed to make its file */
    char program[SPARE_NAME_BYTES];
};

/* A program that was executed by a process that cannot write the witness's file, and that will
 * probably be unable to record itself: it cannot load the probe, or does not inherit the descriptor
 * of this memory. If a profile of the process began later than `ns`, the program was recorded
 * nevertheless. */
struct spare_executed {
    uint64_t ns;                 /* time of the exec, by clock_now_ns() */
    uint32_t process;            /* written last; 0 if the exec failed */
    uint32_t error;              /* errno of writing to the witness's file */
    char kind[SPARE_KIND_BYTES]; /* `kind` of the exec, as in witness/record.h */
    char program[SPARE_NAME_BYTES];
};

/* The fields `bytes`, `records` and the two `..._count` are counters. A process adds to a counter
 * before it knows whether there is room. So a counter may be larger than the window or the array
 * that it belongs to. */
struct spare_window {
    char magic[8];
    uint64_t bytes;            /* used bytes behind the first SPARE_HEAD_BYTES */
    uint64_t records;          /* number of used entries of `record_offsets` */
    uint64_t unrecorded_count; /* number of used entries of `unrecorded` */
    uint64_t record_offsets[SPARE_RECORDS];
    struct spare_unrecorded unrecorded[SPARE_UNRECORDED];
    uint64_t executed_count; /* number of used entries of `executed` */
    struct spare_executed executed[SPARE_EXECUTED];
};

static_assert(sizeof(struct spare_window) <= SPARE_HEAD_BYTES, "records begin behind it");

#endif
