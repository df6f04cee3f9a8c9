/* huge_page_density.h - learns from chunks with small pages how much of its memory a program
 * touches.
 *
 * A huge page is resident as a whole. If a program writes only to the beginnings of its buffers,
 * huge pages make memory resident that is never used. So from time to time a chunk is begun with
 * small pages. Such a chunk is the sample. When another chunk is begun, the kernel is asked how
 * many pages of the sample are resident. If at least seven of eight are, the next chunks may
 * request huge pages: at most an eighth as many as the process uses. So if the program begins to
 * touch less of its memory, the waste stays small. After them comes another sample.
 *
 * A sandbox may kill the process for the system call that asks. In a sandbox, and in the archive,
 * only a chunk that begins with a slab of a single slice may request a huge page: the blocks of
 * such a slab are not larger than 4 KiB, and carving touches all its pages.
 *
 * The caller of every function holds the page heap's lock.
 */
#ifndef CAIRN_ALLOC_HUGE_PAGE_DENSITY_H
#define CAIRN_ALLOC_HUGE_PAGE_DENSITY_H

#include "base/base.h"

/* Returns whether a chunk that begins with a run of `slices` slices may request a huge page.
 * `used_chunks` is the number of chunks' worth of slices that the process uses. */
bool huge_page_density_suffices(size_t slices, size_t used_chunks);

/* Makes a chunk that begins with small pages the sample. */
void huge_page_density_sample(size_t number);

#endif
