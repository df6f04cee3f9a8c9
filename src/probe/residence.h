/* residence.h - what of the process is resident, and what of that nobody was ever given.
 *
 * One call at a time: session.c sees to it. What the kernel does not tell is RESIDENCE_UNKNOWN, and 0 for the first.
 */
#ifndef CAIRN_PROBE_RESIDENCE_H
#define CAIRN_PROBE_RESIDENCE_H

#include "base/base.h"

#define RESIDENCE_UNKNOWN UINT64_MAX
#define RESIDENCE_HUGE_LEAST                                                                       \
    (UINT64_C(8) << 20) /* below, nothing is raised: a walk over the whole process is spared */

enum { RESIDENCE_EXTENT_NS = 10000 }; /* what a look takes for each 2 MiB, about */

/* Without the pages of files, which are no allocator's. */
uint64_t residence_bytes(void);

struct residence {
    uint64_t
        unasked_bytes; /* the allocator's and never handed out, in extents of 2 MiB that have something that was */
    uint64_t unwritten_bytes; /* of these, what reads as zero; by a sample */
    uint64_t
        huge_bytes; /* of the process, in huge pages; unknown where there is less than RESIDENCE_HUGE_LEAST of the
                                 one before */
    uint64_t
        own_bytes; /* the allocator's, in such extents: at most what it has there from the kernel */
};

/* Looks at each page of such extents. */
struct residence residence_look(void);

#endif
