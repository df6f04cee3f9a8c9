/* ill.h - gives an allocator exactly one illness, which is a known weakness. malloc and free call
 * hooks of the illness, and then the next allocator in the loader's search order.
 *
 * Each illness is a library, to be preloaded before a healthy allocator and after the probe. The
 * comment of its file says what the illness does, what its strength $ILL means, and which findings
 * Cairn must report. Cairn must report no other finding.
 *
 * - Every malloc calls ill_allocates(), and every free calls ill_frees(). These hooks may use time,
 *   system calls and memory.
 * - ill_gave, if an illness sets it, is called with every block that malloc and realloc return. If
 *   `is_new` is false, the block has content that must stay.
 * - ill_zeroed, if an illness sets it, is called with every block that calloc has cleared.
 * - ill_own, if an illness sets it, serves blocks itself.
 */
#ifndef ILL_H
#define ILL_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void ill_allocates(size_t *bytes); /* may increase *bytes */
static int ill_frees(void *block);        /* returns 0 to keep the block from being freed */

static void (*ill_gave)(void *block, bool is_new);
static void (*ill_zeroed)(void *block, size_t bytes);

struct ill_own {
    void *(*serve)(size_t bytes); /* returns NULL to use the next allocator */
    size_t (*room)(void *block);  /* usable bytes; 0: a block of another allocator */
    void (*take)(void *block);
};
static const struct ill_own *ill_own;

static void *(*next_malloc)(size_t);
static void (*next_free)(void *);
static void *(*next_realloc)(void *, size_t);
static size_t (*next_usable)(void *);
static unsigned long ill_strength;

static _Alignas(16) char early[4096]; /* blocks for calls before next_malloc is set */
static _Atomic size_t early_used;

__attribute__((constructor)) static void ill_begin(void)
{
    const char *given = getenv("ILL");
    ill_strength = given != NULL ? strtoul(given, NULL, 10) : 1;
    next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    next_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    next_usable = (size_t (*)(void *))dlsym(RTLD_NEXT, "malloc_usable_size");
    next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
}

void *malloc(size_t bytes)
{
    if (next_malloc == NULL) {
        size_t at = atomic_fetch_add(&early_used, (bytes + 15) & ~(size_t)15);
        return at + bytes <= sizeof early ? early + at : NULL;
    }
    ill_allocates(&bytes);
    void *block = ill_own != NULL ? ill_own->serve(bytes) : NULL;
    if (block == NULL)
        block = next_malloc(bytes);
    if (ill_gave != NULL && block != NULL)
        ill_gave(block, true);
    return block;
}

size_t malloc_usable_size(void *block)
{
    char *at = block;
    if (block == NULL || (at >= early && at < early + sizeof early))
        return 0;
    size_t room = ill_own != NULL ? ill_own->room(block) : 0;
    return room != 0 ? room : next_usable(block);
}

void free(void *block)
{
    char *at = block;
    if (block == NULL || (at >= early && at < early + sizeof early))
        return;
    if (!ill_frees(block))
        return;
    if (ill_own != NULL && ill_own->room(block) != 0)
        ill_own->take(block);
    else
        next_free(block);
}

void *calloc(size_t count, size_t each)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, each, &bytes))
        return NULL;
    void *block = malloc(bytes);
    if (block == NULL)
        return NULL;
    memset(block, 0, bytes);
    if (ill_zeroed != NULL)
        ill_zeroed(block, bytes);
    return block;
}

void *realloc(void *block, size_t bytes)
{
    char *at = block;
    if (block == NULL)
        return malloc(bytes);
    if (at >= early && at < early + sizeof early) {
        void *moved = malloc(bytes);
        return moved == NULL ? NULL : memcpy(moved, block, bytes);
    }
    size_t room = ill_own != NULL ? ill_own->room(block) : 0;
    if (room != 0) {
        void *moved = room >= bytes ? block : malloc(bytes);
        if (moved != NULL && moved != block) {
            memcpy(moved, block, room);
            free(block);
        }
        return moved;
    }
    ill_allocates(&bytes);
    void *moved = next_realloc(block, bytes);
    if (ill_gave != NULL && moved != NULL)
        ill_gave(moved, false);
    return moved;
}

static inline void ill_rounds(unsigned long rounds)
{
    for (volatile unsigned long i = 0; i < rounds; i++)
        ;
}

/* Returns true every `times`th call in a thread. */
static inline int ill_every(unsigned long times)
{
    static _Thread_local unsigned long count __attribute__((tls_model("initial-exec")));
    return ++count % times == 0;
}

#endif
