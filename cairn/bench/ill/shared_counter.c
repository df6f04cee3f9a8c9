/* shared_counter: all threads count their operations in one word, $ILL times each.
 *
 * In a program of several threads, the cache line of the word moves between the processors. Cairn
 * must report the finding contended-atomic (docs/findings.md).
 */
#include "ill.h"

static _Atomic unsigned long operation_count;

static void hold(void)
{
    for (unsigned long i = 0; i < ill_strength; i++)
        atomic_fetch_add_explicit(&operation_count, 1, memory_order_relaxed);
}

#include "holding.h"
