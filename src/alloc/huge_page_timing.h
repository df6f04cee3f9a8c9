/* huge_page_timing.h - times first touches, and decides whether huge pages are worth it.
 *
 * A huge page saves 511 page faults. But on a virtual machine whose host supplies memory on demand,
 * the host may first have to find 2 MiB. On such a machine, a huge page took 0.24 ms if the host
 * had the memory, and 3 to 17 ms if not. 512 small pages took 0.5 to 1.5 ms, because the kernel
 * takes them from the pages that were used last, which the host has supplied already. So first
 * touches are timed. After a slow huge page, no huge page is requested for a number of chunks. The
 * number doubles after each slow huge page, until a huge page comes quickly.
 *
 * Any thread may call these functions. They take no lock: a lost update loses one measurement of
 * many.
 */
#ifndef CAIRN_ALLOC_HUGE_PAGE_TIMING_H
#define CAIRN_ALLOC_HUGE_PAGE_TIMING_H

#include "base/base.h"

enum huge_page_use { HUGE_PAGE_NEVER, HUGE_PAGE_ALWAYS, HUGE_PAGE_AUTO };

/* Chooses huge pages never, always, or as long as they come quickly (the default). Forgets that
 * huge pages were slow before, because they may be quick by now. */
void huge_page_want(enum huge_page_use wanted);
enum huge_page_use huge_page_wanted(void);

/* Returns whether a huge page may be requested for a chunk that would profit from one. If not, the
 * chunk counts as one of the chunks that request no huge page after a slow huge page. */
bool huge_page_may_be_requested(void);

/* The following two functions touch memory that was never touched, and learn from the time that the
 * touch takes. huge_page_time_huge() touches a chunk for which a huge page was requested.
 * huge_page_time_small() touches the first two OS pages of any other chunk. */
void huge_page_time_huge(char *chunk);
void huge_page_time_small(char *chunk);

#endif
