/* calling_malloc.c - an allocator that takes a mutex and calls getppid in each of its functions. It
 * holds the mutex for some microseconds in malloc_usable_size() and in inspect_allocator(), a
 * function of its own. All memory is libc's. */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t each);
extern void *__libc_realloc(void *old, size_t bytes);
extern void __libc_free(void *block);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void call(int spins)
{
    pthread_mutex_lock(&mutex);
    for (volatile int i = 0; i < spins; i++)
        continue;
    pthread_mutex_unlock(&mutex);
    syscall(SYS_getppid);
}

void *malloc(size_t bytes)
{
    call(0);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t each)
{
    call(0);
    return __libc_calloc(count, each);
}

void *realloc(void *old, size_t bytes)
{
    call(0);
    return __libc_realloc(old, bytes);
}

void free(void *block)
{
    call(0);
    __libc_free(block);
}

/* The size that glibc writes in front of a block. */
size_t malloc_usable_size(void *block)
{
    call(2000);
    return block != NULL ? (((size_t *)block)[-1] & ~(size_t)7) - sizeof(size_t) : 0;
}

void inspect_allocator(void)
{
    call(200000);
}

int malloc_trim(size_t keep)
{
    (void)keep;
    call(0);
    return 1;
}
