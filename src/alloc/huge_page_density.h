/* huge_page_density.h - learns from chunks with small pages how much of its memory a program
 * touches.
 *
 * A huge page is resident as a whole. If a program writes only to the beginnings of its buffers,
 * huge pages make memory resident that is never used. So from time to time a chunk is begun with
 * small pages. This chunk is the sample. When another chunk is begun, and at least seven of eight
 * slices of the sample are in use, mincore(2) counts its resident pages. If at least seven of eight
 * are resident, the following chunks may request huge pages. Their number is at most an eighth of
 * the chunks that the process uses, or half of them if the machine's setting is `always`. So if the
 * program begins to touch less of its memory, the waste stays bounded. The chunk after them is the
 * next sample.
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

/* Returns whether a chunk that begins with a run of `slices` slices may request a huge page. Each
 * `true` uses up one of the requests before the next sample. `used_chunks` is the number of slices
 * that the process uses, divided by CHUNK_SLICES. */
bool huge_page_density_suffices(size_t slices, size_t used_chunks);

/* Makes a chunk that begins with small pages the sample. */
void huge_page_density_sample(size_t number);

#endif
