/* residence.h - measures how much memory of the process is resident, and how much of this memory
 * was never handed out.
 *
 * session.c calls these functions for each record of the whole process (struct profile_moment). It
 * lets only one thread at a time into residence_look(). In struct residence, a figure that the
 * kernel does not report is RESIDENCE_UNKNOWN.
 */
#ifndef CAIRN_PROBE_RESIDENCE_H
#define CAIRN_PROBE_RESIDENCE_H

#include "base/base.h"

#define RESIDENCE_UNKNOWN UINT64_MAX

/* Huge pages are counted only if at least this many bytes are unwritten, or if
 * residence_count_huge() was called. In all other cases no finding uses their number, and counting
 * them makes the kernel walk over the memory of the whole process. */
#define RESIDENCE_HUGE_LEAST (UINT64_C(8) << 20)

/* Returns the resident bytes of the process, without pages of files and without the `own` bytes of
 * the probe's private memory. Neither belongs to the allocator. Returns 0 if the kernel does not
 * report the resident bytes. */
uint64_t residence_bytes(uint64_t own);

/* Returns the most bytes that were resident since the process executed its program, or 0 if the
 * kernel does not report them. The caller holds a lock. */
uint64_t residence_peak(void);

/* Resident bytes. All fields but `huge_bytes` count memory of the allocator, and only in extents of
 * 2 MiB of which at least one page was handed out. Some pages of an extent may belong to another
 * owner than the allocator. So the number of pages counted in an extent is at most the number that
 * the allocator has from the kernel there. */
struct residence {
    uint64_t unasked_bytes;   /* memory that was never handed out */
    uint64_t unwritten_bytes; /* estimated part of unasked_bytes that is all zeroes */
    uint64_t huge_bytes;      /* process's huge pages; see RESIDENCE_HUGE_LEAST */
    uint64_t own_bytes;       /* memory of the allocator, handed out or not */
};

/* Looks at each page of the extents described above. Every figure is RESIDENCE_UNKNOWN if OS pages
 * are not 4 KiB, if /proc/self/pagemap cannot be opened, or if another thread installs a filter of
 * system calls meanwhile. */
struct residence residence_look(void);

/* Returns the approximate time that residence_look() takes if this many bytes are resident. */
uint64_t residence_look_ns(uint64_t resident);

/* From now on every residence_look() counts huge pages. Findings about the layout compare them. */
void residence_count_huge(void);

#endif
