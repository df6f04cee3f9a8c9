/* guarded.c - misuses blocks until one of them is guarded (CAIRN_GUARDED).
 *
 *     guarded KIND SIZE
 *
 *     none     no misuse
 *     aligned  no misuse; the blocks are aligned to 64 bytes
 *     read     reads a freed block
 *     write    writes to a freed block
 *     over     writes one byte beyond the end of a block, and frees the block
 *     under    writes one byte before the start of a block, and frees the block
 *     twice    frees a block twice
 *     size     asks for the usable size of a freed block
 *     inside   frees a pointer into a block
 *     sent     sends the signal of a fault to itself
 *     loader   frees a block twice, while another thread holds the loader's lock and allocates
 *
 * Only guarded blocks are misused. The program recognises them by their addresses, which lie apart
 * from those of all other blocks. It allocates COUNT blocks, and prints how many were guarded. */
#include "conformance.h"

#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>

enum { COUNT = 100000, ALIVE = 50 };

static void *volatile held;
static const char *kind;
static size_t size;

static void require_that(bool holds)
{
    if (!holds)
        _exit(2);
}

static bool is(const char *other)
{
    return strcmp(kind, other) == 0;
}

__attribute__((noinline)) void allocates(void);
void allocates(void)
{
    held = is("aligned") ? aligned_alloc(64, size) : malloc(size);
}

__attribute__((noinline)) void frees(void);
void frees(void)
{
    free(held);
}

static _Atomic bool loader_is_locked;

/* About 100 of the blocks are guarded, of the 256 that can be. So no page of a freed block is used
 * again before main() frees the block on it a second time. The pauses leave time for that. */
static int allocates_slowly(struct dl_phdr_info *info, size_t bytes, void *unused)
{
    (void)info, (void)bytes, (void)unused;
    loader_is_locked = true;
    for (int i = 0; i < 5000; i++) {
        free(malloc(size));
        if (i % 50 == 0)
            usleep(1000);
    }
    return 1;
}

static void *locks_loader(void *unused)
{
    dl_iterate_phdr(allocates_slowly, NULL);
    return unused;
}

static void misuse(volatile unsigned char *p)
{
    volatile unsigned char byte;
    if (is("over"))
        p[size] = 1;
    if (is("under"))
        p[-1] = 1;
    held = is("inside") ? (char *)p + 16 : (char *)p;
    frees();
    if (is("read"))
        byte = p[0];
    if (is("write"))
        p[0] = 1;
    if (is("loader")) {
        pthread_t other;
        require_that(pthread_create(&other, NULL, locks_loader, NULL) == 0);
        while (!loader_is_locked)
            continue;
    }
    if (is("twice") || is("loader"))
        frees();
    if (is("size"))
        byte = (unsigned char)malloc_usable_size((void *)p);
    (void)byte;
}

int main(int argc, char **argv)
{
    require_cairn();
    kind = argc > 1 ? argv[1] : "none";
    size = argc > 2 ? strtoul(argv[2], NULL, 10) : 100;
    unsigned guarded = 0;
    void *large = malloc(1 << 20); /* never guarded */
    if (is("sent"))
        raise(SIGSEGV);
    void *alive[ALIVE] = {0};
    for (int i = 0; i < COUNT; i++) {
        free(alive[i % ALIVE]);
        alive[i % ALIVE] = NULL;
        allocates();
        void *p = held;
        if (!is_guarded(p, large)) {
            alive[i % ALIVE] = p;
            continue;
        }
        guarded++;
        require_that((uintptr_t)p % (is("aligned") ? 64 : 16) == 0);
        require_that(malloc_usable_size(p) >= size);
        memset(p, 0x5a, size);
        p = is("none") && i % 3 == 0 ? realloc(p, size) : p;
        require_that(((unsigned char *)p)[size - 1] == 0x5a);
        if (is_guarded(p, large) && !is("aligned"))
            misuse(p);
        else
            free(p);
    }
    for (int i = 0; i < ALIVE; i++)
        free(alive[i]);
    free(large);
    printf("%u\n", guarded);
    return 0;
}
