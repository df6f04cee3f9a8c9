/* probe_scripted_malloc.c - an allocator whose slow paths are known. The size of a block selects
 * the system calls and the time that its allocation takes.
 *
 * Blocks come from an arena of this library. They are never reused, except those of 48 bytes:
 *
 *     48 bytes      always the same block: new once, then reused
 *     64 bytes      a nanosleep of 0 ns
 *     80 bytes      sched_yield
 *     96 bytes      an mmap of 8192 bytes and its munmap
 *     112 bytes     takes and releases a mutex, a spin lock, a lock for reading and one for
 *                   writing; tries in vain to lock a mutex
 *     128 bytes     holds a mutex for a millisecond of computing
 *     144 bytes     maps three pages, writes to each and unmaps them: three page faults
 *     160 bytes     one getppid and two getuid, each by syscall() with the call's number
 *     77 bytes      takes a tenth of a second
 *     1000 bytes    PATHS_NS nanoseconds of computing (2000 by default)
 */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ARENA_BYTES ((size_t)1 << 30)

static _Atomic uintptr_t next_block;
static char hot[48] __attribute__((aligned(16)));

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void compute(uint64_t ns)
{
    for (uint64_t end = now_ns() + ns; now_ns() < end;)
        continue;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

__attribute__((constructor)) static void begin(void)
{
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
}

static void locks(void)
{
    pthread_mutex_lock(&held);
    pthread_mutex_trylock(&held);
    pthread_mutex_unlock(&held);
    pthread_spin_lock(&spin);
    pthread_spin_unlock(&spin);
    pthread_rwlock_rdlock(&rwlock);
    pthread_rwlock_unlock(&rwlock);
    pthread_rwlock_wrlock(&rwlock);
    pthread_rwlock_unlock(&rwlock);
}

static void hold(void)
{
    pthread_mutex_lock(&mutex);
    compute(1000000);
    pthread_mutex_unlock(&mutex);
}

static void fault(void)
{
    enum { PAGE = 4096, PAGES = 3 };
    volatile char *start =
        mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < PAGES; i++)
        start[i * PAGE] = 1;
    munmap((void *)start, PAGES * PAGE);
}

static uint64_t paths_ns(void)
{
    static _Atomic uint64_t ns;
    if (ns == 0) {
        const char *value = getenv("PATHS_NS");
        ns = value != NULL ? strtoull(value, NULL, 10) : 2000;
    }
    return ns;
}

static void act(size_t bytes)
{
    const struct timespec none = {0};
    switch (bytes) {
    case 64:
        nanosleep(&none, NULL);
        break;
    case 80:
        sched_yield();
        break;
    case 96:
        munmap(mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 8192);
        break;
    case 112:
        locks();
        break;
    case 128:
        hold();
        break;
    case 144:
        fault();
        break;
    case 160:
        syscall(SYS_getppid);
        syscall(SYS_getuid);
        syscall(SYS_getuid);
        break;
    case 77:
        compute(100000000);
        break;
    case 1000:
        compute(paths_ns());
        break;
    default:
        break;
    }
}

/* Takes a block from the arena. The size of the block is stored in front of it. */
static void *take(size_t alignment, size_t bytes)
{
    uintptr_t start = 0;
    if (next_block == 0) {
        void *arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        atomic_compare_exchange_strong(&next_block, &start, (uintptr_t)arena);
    }
    if (alignment < 16)
        alignment = 16;
    uintptr_t room = (bytes + 16 + 2 * alignment + 15) & ~(uintptr_t)15;
    uintptr_t block = (atomic_fetch_add(&next_block, room) + 16 + alignment - 1) & ~(alignment - 1);
    ((size_t *)block)[-1] = bytes;
    return (void *)block;
}

void *malloc(size_t bytes)
{
    act(bytes);
    return bytes == sizeof hot ? hot : take(16, bytes);
}

void free(void *block)
{
    (void)block;
}

void *calloc(size_t count, size_t each)
{
    return take(16, count * each);
}

void *realloc(void *old, size_t bytes)
{
    void *block = take(16, bytes);
    if (old != NULL)
        memcpy(block, old, ((size_t *)old)[-1] < bytes ? ((size_t *)old)[-1] : bytes);
    return block;
}

void *memalign(size_t alignment, size_t bytes)
{
    return take(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return take(alignment, bytes);
}

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    *block = take(alignment, bytes);
    return 0;
}

size_t malloc_usable_size(void *block)
{
    return block != NULL && block != hot ? ((size_t *)block)[-1] : sizeof hot;
}
