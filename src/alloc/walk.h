/* walk.h - visits every live block.
 *
 * Each slab is read under the locks of all heaps, so that it cannot go back to the page heap
 * meanwhile. Then the locks are dropped, and the visitor is called for the blocks that were found.
 * So the visitor may allocate and free. A small block is live if its key does not mark it as free.
 * The walk need not read the lists of threads, and so finds the blocks of running threads, too.
 * Blocks that are allocated or freed during the walk may be visited or not.
 */
#ifndef CAIRN_ALLOC_WALK_H
#define CAIRN_ALLOC_WALK_H

#include <cairn/cairn.h>

#include "base/base.h"

struct heap;

/* Visits the live blocks of one heap, or of the whole process if `only` is NULL. Returns false if
 * the visitor returned false, which ends the walk. */
bool walk_blocks(const struct heap *only, cairn_visitor visit, void *context);

#endif
