/* huge_page.h - huge pages for memory that has proved to last.
 *
 * Memory that many pages were touched of, and that stays, is read and written faster through huge pages: one entry of the
 * processor's address cache for 2 MiB. Who asks for them beforehand pays with memory that is never touched; a chunk of which all is
 * resident costs none. So chunks that were dense for a quarter of a second or two are collapsed (MADV_COLLAPSE, Linux 6.1), as
 * long as that has taken no more than a thirty-second of the time since the first look, and where 2 MiB more while it is done are
 * a twentieth at most. The kernel is not asked what is resident,
 * for that call may be death in a sandbox: a slab of blocks of up to an OS page has been touched as far as it is carved; of large blocks
 * and runs that were, nothing is known, and no more than a thirty-second of a chunk may be those.
 *
 * There is no thread for it: it is done by whoever ends an epoch of purge.h.
 *
 * A chunk that large blocks had several times, one after the other, is collapsed when the next one gets it: nobody uses what lies
 * there, so it is looked at, and what holds something other than zeroes is resident.
 */
#ifndef CAIRN_ALLOC_HUGE_PAGE_H
#define CAIRN_ALLOC_HUGE_PAGE_H

#include <stddef.h>

/* An epoch is over. Takes the page heap's lock; who frees a run for another heap holds that heap's meanwhile. */
void huge_page_epoch(void);

/* The caller has made a large block of a run of at least CHUNK_SLICES, and nobody has touched it since. Holds no lock. */
void huge_page_reused(size_t index, size_t slices);

#endif
