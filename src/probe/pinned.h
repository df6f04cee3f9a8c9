/* pinned.h - finds the spans of memory that few live blocks hold: OS pages and chunks of 2 MiB.
 *
 * record/call_stacks.h says when a span is sparse. The caller adds all live blocks, then judges the
 * spans, and then asks for the part that each block holds:
 *
 *     pinned_begin(PINNED_CHUNKS, ...)     empties the tables
 *     pinned_add()                         for each live block
 *     pinned_judge()                       reads which pages are resident
 *     pinned_part()                        for each block again
 *
 *     sum of pinned_part() over all blocks  ==  pinned_judge().held
 *
 * The table has no entry for a span that one block covers completely. So there are at most two
 * entries for each block. Only one thread at a time may call these functions. They take about 100
 * bytes of stack.
 */
#ifndef CAIRN_PROBE_PINNED_H
#define CAIRN_PROBE_PINNED_H

#include "base/base.h"

enum pinned_span { PINNED_PAGES = 12, PINNED_CHUNKS = 21 }; /* log2 of the bytes of a span */

struct pinned_totals {
    bool is_known;
    uint64_t sparse; /* number of sparse spans */
    uint64_t held;   /* resident bytes of the sparse spans */
};

/* Begins a new search, to which at most `blocks` blocks will be added. Returns false if there is no
 * memory for the tables. */
bool pinned_begin(enum pinned_span kind, size_t blocks);

void pinned_add(uintptr_t start, uint64_t bytes);

/* Finds the sparse spans. `is_known` is false if the kernel does not say which pages are
 * resident. */
struct pinned_totals pinned_judge(void);

/* Returns how many resident bytes of sparse spans the block holds. The blocks of a span hold equal
 * parts of its resident bytes. */
double pinned_part(uintptr_t start, uint64_t bytes);

#endif
