/* huge_page_unasked.h - keeps the kernel from giving huge pages that nobody requested.
 *
 * If the machine's setting is `always`, the kernel gives a huge page at the first touch of 2 MiB.
 * Then a program with one block takes 2 MiB, and 100 bytes in each of many buffers take 2 MiB
 * each. So the memory of new chunks is advised to have small pages: the first chunks in any case,
 * because the setting is not known yet, and later chunks if the setting is `always`. Then chunks
 * get huge pages under the same rules as with the setting `madvise`. The exception is a long run,
 * whose whole chunks may get them at the first touch, as the administrator wants: the blocks of
 * other allocators get them, too.
 *
 * Without huge_page_may_ask(), the setting stays unknown, and only the first chunks are advised.
 *
 * The caller of every function holds the page heap's lock.
 */
#ifndef CAIRN_ALLOC_HUGE_PAGE_UNASKED_H
#define CAIRN_ALLOC_HUGE_PAGE_UNASKED_H

#include "base/base.h"

/* Returns whether the process may make system calls for which a sandbox could kill it: mincore(2),
 * and those that read a file. NULL: it may not. Set by sandbox.c. */
extern bool (*huge_page_may_ask)(void) __attribute__((visibility("hidden")));

/* Called when the region has grown by `count` chunks from number `first` on. */
void huge_page_unasked_grown(size_t first, size_t count);

/* Called when a run has been mapped anew, so that no advice holds any more. */
void huge_page_unasked_renewed(size_t index, size_t slices);

/* Called before a run is handed out. If the run is long and the setting is `always`, lets the
 * kernel give huge pages in the chunks that the run covers, and returns true. */
bool huge_page_unasked_run(size_t index, size_t slices);

/* Returns true if the setting is `always`. Returns false while the region is small. */
bool huge_page_unasked_is_usual(void);

/* Lets the kernel turn a chunk into a huge page. */
void huge_page_unasked_allow(size_t number);

#endif
