/* spread_out: small blocks lie on too many pages. Each new block lies $ILL bytes behind the one
 * before it, in the order of the allocations. Freed blocks are reused at once.
 *
 * The allocator's own work is that of a healthy one. In comparison with one, Cairn must say that
 * the program itself runs slower because its blocks lie on more pages.
 * The finding is blocks-spread-out (docs/findings.md).
 */
#include "reused.h"
#include "spaced.h"

static size_t spaced_bytes(size_t each)
{
    return each > ill_strength ? each : ill_strength;
}
