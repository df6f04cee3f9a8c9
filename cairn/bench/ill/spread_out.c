/* spread_out: small blocks lie on too many pages. Each new block lies $ILL bytes behind the one
 * before it, in the order of the allocations. Freed blocks are reused at once.
 *
 * The allocator itself does the usual work of a healthy allocator. In comparison with such an
 * allocator, Cairn must say that the program itself runs slower because its blocks lie
 * on more pages. The finding is blocks-spread-out (docs/findings.md).
 */
#include "reused.h"
#include "spaced.h"

static size_t spaced_bytes(size_t each)
{
    return each > ill_strength ? each : ill_strength;
}
