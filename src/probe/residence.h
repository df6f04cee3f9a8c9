/* residence.h - what of the process is resident, and what of that nobody was ever given.
 *
 * Under the session's latch: one call at a time. What the kernel does not tell is RESIDENCE_UNKNOWN, and 0 for the first.
 */
#ifndef CAIRN_PROBE_RESIDENCE_H
#define CAIRN_PROBE_RESIDENCE_H

#include "base/base.h"

#define RESIDENCE_UNKNOWN UINT64_MAX
#define RESIDENCE_HUGE_LEAST                                                                                 \
    (UINT64_C(8) << 20) /* below, nothing is raised: a walk over the whole process is spared */

/* Without the pages of files, which are no allocator's. */
uint64_t residence_bytes(void);

struct residence {
    uint64_t unasked_bytes; /* never handed out, in extents of 2 MiB that have something that was */
    uint64_t
        huge_bytes; /* of the process, in huge pages; unknown where the other is less than RESIDENCE_HUGE_LEAST */
};

/* Looks at each page of such extents: 10 µs for 2 MiB. */
struct residence residence_look(void);

#endif
