/* huge_page_unasked.h - keeps the kernel from giving huge pages without a request.
 *
 * If the machine's setting is `always`, the kernel gives a huge page at the first touch of 2 MiB.
 * Then a program with one block takes 2 MiB, and 100 bytes in each of many buffers take 2 MiB
 * each. So the chunks below 8 MiB are advised to have small pages, before the setting is known. The
 * setting is read when the region grows further. If it is `always`, all later chunks are advised,
 * too. A chunk then gets a huge page only if it requests one. The exception is a run of 4 MiB and
 * more, which may get huge pages at the first touch: the administrator wants them, and other
 * allocators get them for such blocks.
 *
 * Without huge_page_may_ask(), the setting stays unknown, and only the chunks below 8 MiB are
 * advised. With CAIRN_HUGE_PAGES=1 no chunk is advised, and with CAIRN_HUGE_PAGES=0 every chunk is.
 *
 * The caller of every function holds the page heap's lock, except for huge_page_may_ask().
 */
#ifndef CAIRN_ALLOC_HUGE_PAGE_UNASKED_H
#define CAIRN_ALLOC_HUGE_PAGE_UNASKED_H

#include "base/base.h"

/* Returns whether the process may make system calls for which a sandbox could kill it: mincore(2),
 * and those that read a file. NULL: it may not. Set by sandbox.c. */
extern bool (*huge_page_may_ask)(void) __attribute__((visibility("hidden")));

/* Called for slices that were just mapped, for the first time or anew. They have no advice yet. */
void huge_page_unasked_grown(size_t index, size_t slices);

/* Returns whether a run of this length may get huge pages at the first touch. The page heap then
 * calls huge_page_unasked_allow() for the run when it is handed out or extended, and
 * huge_page_unasked_forbid() when it is freed. All pages of the run have the same advice, so that
 * the run is one mapping, which mremap(2) can move. */
bool huge_page_unasked_is_long(size_t slices);

/* These functions advise the kernel to use huge pages, or small pages, for the slices. */
void huge_page_unasked_allow(size_t index, size_t slices);
void huge_page_unasked_forbid(size_t index, size_t slices);

/* Returns true if the setting has been read and is `always`. */
bool huge_page_unasked_is_always(void);

#endif
