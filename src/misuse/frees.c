/* frees.c - wrong pointers in calls of free(), realloc() and malloc_usable_size(). */
#include "misuse/scenarios.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

/* Frees a pointer without removing a block from the table. This is the misuse. */
static void free_wrongly(void *p)
{
    free(opaque(p));
}

/* --- double free ------------------------------------------------------------------------------ */

static void twice(size_t size, int attack)
{
    (void)attack;
    unsigned char *p = live_take(size);
    live_free(p);
    free_wrongly(p);
}

/* Frees a block twice, and another block in between. Attack 1 first frees as many blocks as glibc
 * keeps in a thread's cache, so that this cache is full. */
static void twice_after_others(size_t size, int attack)
{
    enum { CACHED = 7 };
    unsigned char *before[CACHED];
    for (int i = 0; attack == 1 && i < CACHED; i++)
        before[i] = live_take(size);
    unsigned char *p = live_take(size);
    unsigned char *q = live_take(size);
    for (int i = 0; attack == 1 && i < CACHED; i++)
        live_free(before[i]);
    live_free(p);
    live_free(q);
    free_wrongly(p);
}

/* Frees a block a second time when other blocks that were freed with it are in use again. */
static void twice_after_refill(size_t size, int attack)
{
    (void)attack;
    enum { SOME = 40 };
    unsigned char *some[SOME];
    for (int i = 0; i < SOME; i++)
        some[i] = live_take(size);
    for (int i = 0; i < SOME; i++)
        live_free(some[i]);
    for (size_t i = 0; i < live_many(size); i++) {
        live_take(size);
        bool began = false;
        for (int k = 0; k < SOME; k++)
            began |= live_overlaps(some[k], size);
        if (began)
            break;
    }
    for (int k = 0; k < SOME; k++)
        if (!live_overlaps(some[k], size)) {
            free_wrongly(some[k]);
            return;
        }
    impossible("every freed block is in use again");
}

/* Frees a block twice, and writes to the block in between. Attack 2 changes only the second word,
 * in which glibc keeps its mark of a free block. */
static void twice_overwritten(size_t size, int attack)
{
    unsigned char *p = live_take(size);
    live_free(p);
    memset(opaque(p + (attack == 2 ? 8 : 0)), attack == 0 ? 0x5a : 0, attack == 2 ? 8 : 16);
    free_wrongly(p);
}

static void second_in_thread(size_t size, int attack)
{
    (void)attack;
    unsigned char *p = live_take(size);
    live_free(p);
    in_thread(free, opaque(p));
}

static void first_in_thread(size_t size, int attack)
{
    (void)attack;
    unsigned char *p = live_take(size);
    live_forget(p);
    in_thread(free, opaque(p));
    free_wrongly(p);
}

/* realloc(p, 0) frees the block in glibc. Where it returns a block instead, that block is freed.
 * Attack 1 frees a block of malloc(0) twice, whatever `size` is. */
static void after_size_0(size_t size, int attack)
{
    if (attack == 1) {
        void *none = opaque(malloc(0));
        free(none);
        free_wrongly(none);
        for (size_t i = 0; i < live_many(1); i++)
            live_take(1);
        return;
    }
    unsigned char *p = live_take(size);
    live_forget(p);
    void *rest = opaque(realloc(opaque(p), 0));
    if (rest != NULL)
        free(opaque(rest));
    free_wrongly(p);
}

/* Frees a block a second time after malloc has handed out its memory again, as another block. */
static void late(size_t size, int attack)
{
    (void)attack;
    unsigned char *p = live_take(size);
    live_free(p);
    for (size_t i = 0; i < live_many(size) && !live_overlaps(p, size); i++)
        live_take(size);
    free_wrongly(p);
}

/* --- other calls with a freed block ----------------------------------------------------------- */

static void resized(size_t size, int attack)
{
    const size_t sizes[] = {size, 2 * size, size / 2, 2 * size};
    unsigned char *p = live_take(size);
    live_free(p);
    if (attack == 3)
        memset(opaque(p), 0x5a, 16);
    unsigned char *q = opaque(realloc(opaque(p), sizes[attack]));
    if (q == NULL)
        refused();
    live_adopt(q, sizes[attack]);
}

/* Calls malloc_usable_size() for a freed block. When the memory serves another block, the program
 * writes as many bytes as that call allowed. */
static void sized(size_t size, int attack)
{
    (void)attack;
    unsigned char *p = live_take(size);
    live_free(p);
    size_t usable = malloc_usable_size(opaque(p));
    if (usable == 0)
        refused();
    for (size_t i = 0; i < live_many(size) && !live_overlaps(p, size); i++)
        live_take(size);
    if (live_overlaps(p, size)) {
        memset(opaque(p), 0x5a, usable);
        live_check();
    }
}

/* --- pointers to no block --------------------------------------------------------------------- */

static void of_area(enum area_kind kind, size_t size, int attack)
{
    unsigned char *area = area_of(kind);
    unsigned char *p = area + (attack == 2 ? 4096 : 64);
    if (attack > 0)
        pretend_block(p, size, area, AREA_BYTES);
    free_wrongly(p);
}

static void of_stack(size_t size, int attack)
{
    of_area(AREA_STACK, size, attack);
}

static void of_static(size_t size, int attack)
{
    of_area(AREA_STATIC, size, attack);
}

static void of_mapping(size_t size, int attack)
{
    of_area(AREA_MAPPED, size, attack);
}

/* Frees an address near the heap at which no block was ever handed out, or no address at all. */
static void of_nothing(size_t size, int attack)
{
    uintptr_t highest = ((uintptr_t)live_highest(size) + 31) & ~(uintptr_t)15;
    const uintptr_t places[] = {highest, highest + (1 << 20), 0x10, UINT64_C(0x8123456789abcdf0)};
    free_wrongly(opaque((void *)places[attack]));
}

static void inside(size_t size, size_t by)
{
    unsigned char *p = live_take(size);
    live_unchecked(p);
    pretend_block(p + by, size, p, size);
    free_wrongly(p + by);
}

static void interior(size_t size, int attack)
{
    inside(size, attack == 0 ? 16 : ((size / 2 + 15) & ~(size_t)15));
}

static void misaligned(size_t size, int attack)
{
    const size_t by[] = {1, 4, 8};
    inside(size, by[attack]);
}

const struct scenario frees[] = {
    {"double-free", 1, twice, "a block is freed twice in a row"},
    {"double-free-after-others", 2, twice_after_others,
     "a block is freed twice, with other frees between"},
    {"double-free-after-refill", 1, twice_after_refill,
     "a block is freed again when blocks freed with it are in use"},
    {"double-free-overwritten", 3, twice_overwritten,
     "a block is freed twice, with a write to it between"},
    {"double-free-in-thread", 1, second_in_thread,
     "a block is freed twice, the second time by another thread"},
    {"double-free-from-thread", 1, first_in_thread,
     "a block is freed twice, the first time by another thread"},
    {"double-free-size-0", 2, after_size_0, "a block is freed after realloc to 0 bytes"},
    {"late-free", 1, late, "a block is freed again when its memory is another block"},
    {"realloc-after-free", 4, resized, "a freed block is resized"},
    {"size-after-free", 1, sized, "the usable size of a freed block is asked"},
    {"free-stack", 3, of_stack, "an address of the stack is freed"},
    {"free-static", 3, of_static, "an address of static data is freed"},
    {"free-foreign", 3, of_mapping, "an address of a foreign mapping is freed"},
    {"free-wild", 4, of_nothing, "an address at which no block ever was is freed"},
    {"free-interior", 2, interior, "an address inside a block is freed"},
    {"free-misaligned", 3, misaligned, "an address 1, 4 or 8 bytes inside a block is freed"},
    {NULL, 0, NULL, NULL},
};
