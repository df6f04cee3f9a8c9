/* huge_page_unasked.h - keeps the kernel from giving huge pages that nobody requested.
 *
 * If the machine's setting is `always`, the kernel gives a huge page at the first touch of 2 MiB.
 * Then a program with one block takes 2 MiB, and 100 bytes in each of many buffers take 2 MiB
 * each. So the chunks below 8 MiB are advised to have small pages, before the setting is known. The
 * setting is read when the region grows further. If it is `always`, all later chunks are advised,
 * too. A chunk then gets a huge page only if it requests one. The chunks that a run covers as a
 * whole may get huge pages at the first touch, if there are at least two: the administrator wants
 * them, and other allocators get them for such blocks.
 *
 * Without huge_page_may_ask(), the setting stays unknown, and only the chunks below 8 MiB are
 * advised. With CAIRN_HUGE_PAGES=1 no chunk is advised, and with CAIRN_HUGE_PAGES=0 every chunk is.
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

/* Called before a run is handed out. If the run covers at least two whole chunks, and the setting
 * is `always`, lets the kernel give huge pages in these chunks, and returns true. */
bool huge_page_unasked_run(size_t index, size_t slices);

/* Returns true if the setting has been read and is `always`. */
bool huge_page_unasked_is_always(void);

/* Lets the kernel turn a chunk into a huge page. */
void huge_page_unasked_allow(size_t number);

#endif
