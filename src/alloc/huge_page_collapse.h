/* huge_page_collapse.h - turns memory that has proved to last into huge pages.
 *
 * Reads and writes are faster through a huge page, because one entry of the TLB then covers 2 MiB.
 * A huge page that is requested before the memory is used can make memory resident that is never
 * touched. In the place of a chunk that is resident already, a huge page takes no more memory. So a
 * chunk is collapsed into a huge page (MADV_COLLAPSE, Linux 6.1)
 *
 * - if it was dense (page_heap.h) at the end of two epochs of a quarter of a second,
 * - as long as collapsing has taken at most a thirty-second of the time since the first search for
 *   such a chunk, and
 * - if the 2 MiB that the kernel needs for the copy are at most a twentieth of the memory in use.
 *
 * The kernel is not asked which pages are resident, because a sandbox may kill the process for that
 * system call. Instead the records of the slices are read. If the blocks of a slab are not larger
 * than an OS page, all its pages up to the last carved block have been touched. Nothing is known
 * about the pages of a large block, or of a run that was a large block. At most a thirty-second of
 * a chunk may be such memory.
 *
 * No thread exists for this work: the thread that ends an epoch of purge.h does it.
 *
 * A chunk that belonged to large blocks several times, one after the other, is collapsed when the
 * next large block gets it. At that moment the program has no data there, so its content can be
 * read: a page that holds anything but zeroes is resident.
 */
#ifndef CAIRN_ALLOC_HUGE_PAGE_COLLAPSE_H
#define CAIRN_ALLOC_HUGE_PAGE_COLLAPSE_H

#include <stddef.h>

/* Collapses dense chunks at the end of an epoch. Takes the page heap's lock. The caller may hold
 * the lock of a heap, as heap_sweep() does when it gives slabs back. */
void huge_page_collapse_epoch(void);

/* Collapses a reused chunk within a new large block of at least CHUNK_SLICES, which the program has
 * not touched yet. The caller holds no lock. */
void huge_page_collapse_reused(size_t index, size_t slices);

#endif
