/* wide_headers: $ILL unused bytes lie between small blocks, besides their headers of 16 bytes.
 * Freed blocks are reused at once.
 *
 * The allocator itself does the usual work of a healthy allocator. In comparison with such an
 * allocator, Cairn must say that the program itself runs slower because unused bytes
 * lie between its blocks. The finding is headers-between-blocks (docs/findings.md). If too few
 * neighbouring blocks have similar sizes, the finding is blocks-spread-out.
 */
#include "reused.h"
#include "spaced.h"

static size_t spaced_bytes(size_t each)
{
    return each + ill_strength;
}
