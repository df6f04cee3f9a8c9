/* large_block_recorder.c - records large blocks, when preloaded into a program that uses glibc.
 *
 * It writes a struct event for each allocation above 32 KiB, and for each free of such a block, to
 * $LARGE_BLOCKS/PID.NAME. cache_replay.py reads these files.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SMALL_MOST = 32768, EVENTS = 4096 };

struct event {
    uint64_t block;
    uint64_t bytes;  /* 0: the block is freed */
    uint64_t caller; /* return address */
    uint64_t stack;  /* frame address, which shows the stack's depth */
};

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *block);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct event events[EVENTS];
static size_t count;
static int file = -1;
static pid_t owner;

static void write_out(void)
{
    const char *folder = getenv("LARGE_BLOCKS");
    if (owner != getpid() && folder != NULL) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%d.%s", folder, getpid(), program_invocation_short_name);
        file = open(name, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
        owner = getpid();
    }
    size_t bytes = count * sizeof events[0];
    if (file < 0 || write(file, events, bytes) != (ssize_t)bytes)
        dprintf(STDERR_FILENO, "large_block_recorder: %zu events are lost\n", count);
    count = 0;
}

static void add(const void *block, size_t bytes, const void *caller, const void *stack)
{
    int before = errno;
    pthread_mutex_lock(&mutex);
    events[count++] = (struct event){(uintptr_t)block, bytes, (uintptr_t)caller, (uintptr_t)stack};
    if (count == EVENTS)
        write_out();
    pthread_mutex_unlock(&mutex);
    errno = before;
}

__attribute__((destructor)) static void end(void)
{
    if (count > 0)
        write_out();
}

/* A macro, so that the recorded caller is that of the replaced function. */
#define BORN(block, bytes)                                                                         \
    do {                                                                                           \
        if ((block) != NULL && (bytes) > SMALL_MOST)                                               \
            add(block, bytes, __builtin_return_address(0), __builtin_frame_address(0));            \
    } while (0)

static void dies(void *block)
{
    if (block != NULL && malloc_usable_size(block) > SMALL_MOST)
        add(block, 0, NULL, NULL);
}

void *malloc(size_t bytes)
{
    void *block = __libc_malloc(bytes);
    BORN(block, bytes);
    return block;
}

void *calloc(size_t number, size_t bytes)
{
    void *block = __libc_calloc(number, bytes);
    BORN(block, number * bytes);
    return block;
}

void *realloc(void *block, size_t bytes)
{
    dies(block);
    void *moved = __libc_realloc(block, bytes);
    BORN(moved, bytes);
    return moved;
}

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    *block = __libc_memalign(alignment, bytes);
    BORN(*block, bytes);
    return *block == NULL ? ENOMEM : 0;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    void *block = __libc_memalign(alignment, bytes);
    BORN(block, bytes);
    return block;
}

void free(void *block)
{
    dies(block);
    __libc_free(block);
}

/* operator new is replaced, too, so that the recorded caller is the code that called operator new.
 * Otherwise it would be operator new itself, which calls malloc. */
void *_Znwm(size_t bytes);
void *_Znwm(size_t bytes)
{
    void *block = __libc_malloc(bytes);
    if (block == NULL)
        abort();
    BORN(block, bytes);
    return block;
}

void *_Znam(size_t bytes);
void *_Znam(size_t bytes)
{
    void *block = __libc_malloc(bytes);
    if (block == NULL)
        abort();
    BORN(block, bytes);
    return block;
}
