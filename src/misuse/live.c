#include "misuse/live.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIVE_MOST = 8192, FOREIGN_MOST = 4, EDGE = 4352, ROUNDS = 3 };

struct live {
    unsigned char *start;
    size_t size;
    uint64_t pattern;
    bool checked;
};

static struct live blocks[LIVE_MOST];
static size_t count;
static uint64_t patterns; /* number of patterns used so far */

static struct area {
    const unsigned char *start;
    size_t size;
} areas[FOREIGN_MOST];
static size_t area_count;

/* --- verdicts --------------------------------------------------------------------------------- */

static void print(const char *text)
{
    if (write(STDOUT_FILENO, text, strlen(text)) < 0)
        _exit(1);
}

void damage(const char *how)
{
    print("exploitable ");
    print(how);
    print("\n");
    _exit(0);
}

void refused(void)
{
    print("refused\n");
    _exit(0);
}

void impossible(const char *why)
{
    print("impossible ");
    print(why);
    print("\n");
    _exit(1);
}

/* --- contents --------------------------------------------------------------------------------- */

/* Returns a pattern of eight lower-case letters. The bytes that the misuses write are none of
 * these. */
static uint64_t next_pattern(void)
{
    uint64_t letters = 0;
    uint64_t rest = ++patterns * UINT64_C(0x9e3779b97f4a7c15);
    for (int i = 0; i < 8; i++, rest /= 26)
        letters = letters << 8 | ('a' + rest % 26);
    return letters;
}

static unsigned char byte_at(const struct live *block, size_t at)
{
    return (unsigned char)(block->pattern >> at % 8 * 8);
}

/* Returns the offset of the last EDGE bytes of a block. Bytes that are among the first EDGE bytes
 * do not count. */
static size_t tail_of(size_t size)
{
    return size > 2 * EDGE ? size - EDGE : size < EDGE ? size : EDGE;
}

static void fill(const struct live *block)
{
    for (size_t at = 0; at < block->size && at < EDGE; at++)
        block->start[at] = byte_at(block, at);
    for (size_t at = tail_of(block->size); at < block->size; at++)
        block->start[at] = byte_at(block, at);
}

static void check(const struct live *block)
{
    bool same = true;
    for (size_t at = 0; at < block->size && at < EDGE; at++)
        same &= block->start[at] == byte_at(block, at);
    for (size_t at = tail_of(block->size); at < block->size; at++)
        same &= block->start[at] == byte_at(block, at);
    if (!same && block->checked)
        damage("the contents of another live block changed");
}

/* --- the table -------------------------------------------------------------------------------- */

void live_foreign(const void *start, size_t size)
{
    areas[area_count++] = (struct area){start, size};
}

static bool meet(const unsigned char *a, size_t a_size, const unsigned char *b, size_t b_size)
{
    return (uintptr_t)a < (uintptr_t)b + b_size && (uintptr_t)b < (uintptr_t)a + a_size;
}

bool live_overlaps(const unsigned char *p, size_t size)
{
    for (size_t i = 0; i < count; i++)
        if (meet(p, size, blocks[i].start, blocks[i].size))
            return true;
    return false;
}

void live_adopt(unsigned char *p, size_t size)
{
    if (live_overlaps(p, size))
        damage("two live blocks overlap");
    for (size_t i = 0; i < area_count; i++)
        if (meet(p, size, areas[i].start, areas[i].size))
            damage("malloc returned memory that it never owned");
    if (count == LIVE_MOST)
        impossible("the table of live blocks is full");
    blocks[count] = (struct live){p, size, next_pattern(), true};
    fill(&blocks[count++]);
}

unsigned char *live_take(size_t size)
{
    unsigned char *p = opaque(malloc(size));
    if (p == NULL)
        refused();
    live_adopt(p, size);
    return p;
}

static struct live *find(const unsigned char *p)
{
    for (size_t i = count; i-- > 0;)
        if (blocks[i].start == p)
            return &blocks[i];
    impossible("a block is not in the table");
}

void live_forget(const unsigned char *p)
{
    struct live *block = find(p);
    *block = blocks[--count];
}

void live_unchecked(const unsigned char *p)
{
    find(p)->checked = false;
}

void live_free(unsigned char *p)
{
    check(find(p));
    live_forget(p);
    free(opaque(p));
}

unsigned char *live_pair(size_t size, bool behind, unsigned char **other)
{
    unsigned char *best = NULL;
    uintptr_t least = UINTPTR_MAX;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < count; k++) {
            const struct live *low = &blocks[i];
            const struct live *high = &blocks[k];
            if (low->size != size || high->size != size || low->start >= high->start)
                continue;
            uintptr_t gap = (uintptr_t)(high->start - low->start);
            bool is_first = best == NULL || (behind ? low->start < best : high->start > best);
            if (gap > least || (gap == least && !is_first))
                continue;
            least = gap;
            best = behind ? low->start : high->start;
            *other = behind ? high->start : low->start;
        }
    if (best == NULL)
        impossible("there are no two blocks of the size");
    return best;
}

unsigned char *live_highest(size_t size)
{
    unsigned char *end = NULL;
    for (size_t i = 0; i < count; i++)
        if (blocks[i].size == size && blocks[i].start + size > end)
            end = blocks[i].start + size;
    return end;
}

void live_check(void)
{
    for (size_t i = 0; i < count; i++)
        check(&blocks[i]);
}

/* --- going on --------------------------------------------------------------------------------- */

size_t live_many(size_t size)
{
    return size <= 100 ? 1200 : size <= 1000 ? 320 : 96;
}

/* Of each four blocks, two have `size` bytes. The other two have sizes for which an allocator might
 * use a block of `size` bytes, if the misuse has misled the allocator about the length of this
 * block. */
void live_go_on(size_t size)
{
    size_t with_header = (size + 23) & ~(size_t)15;
    const size_t sizes[] = {size, 2 * with_header - 16, size, size / 2 + 1};
    for (int round = 0; round < ROUNDS; round++) {
        size_t before = count;
        for (size_t i = 0; i < live_many(size); i++)
            live_take(sizes[i % 4]);
        live_check();
        /* live_free() moves the last block into the gap, so this frees the first half. */
        for (size_t i = before; i < count; i++)
            live_free(blocks[i].start);
        live_check();
        while (count > before)
            live_free(blocks[count - 1].start);
    }
}
