/* walk.h - every live block, one after the other.
 *
 * What is in a slab is read under the locks of all heaps, so that the slab stays one; then they are dropped, and the
 * visitor is called for what was found. So it may allocate and free. A small block is live when its key does not say that
 * it is free, which needs no list of anybody's: also blocks of running threads are seen. What is allocated or freed
 * during the walk may be seen or not.
 */
#ifndef CAIRN_ALLOC_WALK_H
#define CAIRN_ALLOC_WALK_H

#include <cairn/cairn.h>

#include "base/base.h"

struct heap;

/* Those of one heap, or with NULL all there are. Returns false where the visitor did, which ends the walk. */
bool walk_blocks(const struct heap *only, cairn_visitor visit, void *context);

#endif
