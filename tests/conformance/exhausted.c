/* exhausted.c - exhausted SIZE: allocates blocks until malloc fails, frees all blocks, and repeats
 * both steps once. When memory has run out, the functions must return NULL with ENOMEM. After the
 * blocks were freed, the functions must work again. Prints the total bytes of the blocks of the
 * first round and of the second round. */
#include "conformance.h"

#include <pthread.h>

/* The blocks link themselves into a list, so that the test needs no other memory. */
struct block {
    struct block *next;
};

static struct block *fill(size_t size, size_t *count)
{
    struct block *first = NULL;
    struct block *block;
    errno = 0;
    for (*count = 0; (block = malloc(size)) != NULL; ++*count) {
        *block = (struct block){first};
        first = block;
    }
    if (errno != ENOMEM || first == NULL)
        _exit(3);
    for (int i = 0; i < 100; i++) /* further requests keep failing and do no harm */
        if (malloc(size * 64 + (8 << 20)) != NULL || calloc(64, size + (1 << 20)) != NULL ||
            aligned_alloc(1 << 21, size + (8 << 20)) != NULL ||
            realloc(first, size * 64 + (8 << 20)) != NULL)
            _exit(4);
    return first;
}

static void give_back(struct block *first)
{
    for (struct block *next; first != NULL; first = next) {
        next = first->next;
        free(first);
    }
}

static void *run(void *argument)
{
    free(malloc(100));
    return argument;
}

int main(int argc, char **argv)
{
    require_cairn();
    if (argc != 2)
        return 2;
    size_t size = strtoul(argv[1], NULL, 10);
    size_t had[2];
    for (int round = 0; round < 2; round++) {
        give_back(fill(size, &had[round]));
        pthread_t id;
        /* The thread may fail to start: its stack comes from mmap, and the allocator may keep the
         * freed memory. */
        if (pthread_create(&id, NULL, run, NULL) == 0)
            pthread_join(id, NULL);
    }
    printf("%zu %zu\n", had[0] * size, had[1] * size);
    return 0;
}
