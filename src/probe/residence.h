/* residence.h - how much memory of the process is resident, and how much of that was never handed
 * out.
 *
 * session.c calls it for each moment; it makes sure that only one thread at a time is in
 * residence_look(). A figure that the kernel does not report is RESIDENCE_UNKNOWN.
 */
#ifndef CAIRN_PROBE_RESIDENCE_H
#define CAIRN_PROBE_RESIDENCE_H

#include "base/base.h"

#define RESIDENCE_UNKNOWN UINT64_MAX

/* Below this many unwritten bytes the huge pages are not counted: no finding could come of them,
 * and the kernel would walk over the whole process. */
#define RESIDENCE_HUGE_LEAST (UINT64_C(8) << 20)

/* Approximate time that residence_look() takes for each 2 MiB. */
enum { RESIDENCE_EXTENT_NS = 10000 };

/* Returns the resident bytes of the process without the pages of files, which belong to no
 * allocator. Returns 0 if the kernel does not report them. */
uint64_t residence_bytes(void);

/* Resident bytes. All but `huge_bytes` are of the allocator, in extents of 2 MiB with at least one
 * page that was handed out. In an extent that another owner shares, they are capped at the pages
 * that the allocator has there from the kernel. */
struct residence {
    uint64_t unasked_bytes;   /* never handed out */
    uint64_t unwritten_bytes; /* of these, all zeroes; estimated from a sample */
    uint64_t huge_bytes;      /* of the process; see RESIDENCE_HUGE_LEAST */
    uint64_t own_bytes;       /* all of it, handed out or not */
};

/* Looks at each page of such extents. Every figure is RESIDENCE_UNKNOWN if OS pages are not 4 KiB
 * or /proc/self/pagemap cannot be opened. */
struct residence residence_look(void);

#endif
