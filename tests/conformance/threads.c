/* threads.c - threads COUNT: starts COUNT short threads, four at a time. Each leaves blocks that
 * later threads free. Threads end by returning, by pthread_exit(), and by cancellation. The
 * destructors of thread-specific data allocate and free in every round. Prints the resident
 * kilobytes after a fifth of the threads and at the end. */
#include "conformance.h"

#include <limits.h>
#include <pthread.h>

enum { AT_ONCE = 4, LEFT = 512, KEYS = 3 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *left[LEFT];
static pthread_key_t keys[KEYS];

static void leave(uint64_t *state, void *p)
{
    pthread_mutex_lock(&lock);
    void **slot = &left[draw_below(state, LEFT)];
    void *before = *slot;
    *slot = p;
    pthread_mutex_unlock(&lock);
    free(before);
}

/* A destructor of thread-specific data. It sets the data again, so that libc calls the destructor
 * in every round. */
static void in_every_round(void *value)
{
    uint64_t state = (uintptr_t)value;
    for (int i = 0; i < 10; i++) {
        char *p = malloc(draw_below(&state, 3000) + 1);
        char *q = realloc(p, draw_below(&state, 60000) + 1);
        if (q == NULL)
            abort();
        *q = 1;
        free(q);
    }
    leave(&state, malloc(40));
    for (size_t i = 0; i < KEYS; i++)
        if (pthread_getspecific(keys[i]) == NULL)
            pthread_setspecific(keys[i], value);
}

static void *run(void *argument)
{
    uint64_t state = (uintptr_t)argument;
    for (size_t i = 0; i < KEYS; i++)
        pthread_setspecific(keys[i], argument);
    void *own[16];
    for (size_t i = 0; i < 16; i++) {
        size_t size = draw_below(&state, i == 0 ? 300000 : 1500) + 1;
        own[i] = malloc(size);
        memset(own[i], 1, size);
    }
    for (size_t i = 0; i < 12; i++)
        free(own[i]);
    for (size_t i = 12; i < 16; i++)
        leave(&state, own[i]);
    switch ((uintptr_t)argument % 3) {
    case 0:
        pthread_exit(NULL);
    case 1:
        pthread_cancel(pthread_self());
        pthread_testcancel();
        abort();
    default:
        return NULL;
    }
}

int main(int argc, char **argv)
{
    require_cairn();
    unsigned long count = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
    for (size_t i = 0; i < KEYS; i++)
        if (pthread_key_create(&keys[i], in_every_round) != 0)
            return 2;
    long early = 0;
    for (unsigned long i = 1; i <= count; i += AT_ONCE) {
        pthread_t ids[AT_ONCE];
        for (size_t k = 0; k < AT_ONCE; k++)
            if (pthread_create(&ids[k], NULL, run, (void *)(i + k)) != 0)
                return 2;
        for (size_t k = 0; k < AT_ONCE; k++)
            pthread_join(ids[k], NULL);
        if (early == 0 && i >= count / 5)
            early = status_kb("VmRSS");
    }
    printf("%ld %ld\n", early, status_kb("VmRSS"));
    return 0;
}
