#include "os/os.h"

#include "base/ticks.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Operations of futex(2). The compiler of musl does not find the header linux/futex.h. */
enum { FUTEX_WAIT_OF_PROCESS = 0 | 128, FUTEX_WAKE_OF_PROCESS = 1 | 128 };

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_WIPEONFORK /* Linux 4.14 */
#define MADV_WIPEONFORK 18
#endif

size_t os_page_bytes(void)
{
    static _Atomic size_t known; /* relaxed: every thread stores the same value */
    size_t bytes = atomic_load_explicit(&known, memory_order_relaxed);
    if (UNLIKELY(bytes == 0)) {
        /* sysconf() would touch pages of libc that nothing else needs. */
        bytes = (size_t)getauxval(AT_PAGESZ);
        atomic_store_explicit(&known, bytes, memory_order_relaxed);
    }
    return bytes;
}

/* Maps memory at an address that the kernel chooses. Returns NULL if it refuses. */
static char *map(size_t bytes)
{
    int saved = errno;
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = saved;
    return start == MAP_FAILED ? NULL : start;
}

/* Kernels before 4.17 ignore MAP_FIXED_NOREPLACE. They take the address for a hint, and may choose
 * another one. */
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum os_claimed os_claim(void *start, size_t bytes)
{
    int saved = errno;
    void *got = mmap(start, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    enum os_claimed claim = got == start                           ? OS_CLAIMED
                            : got != MAP_FAILED || errno == EEXIST ? OS_OCCUPIED
                                                                   : OS_REFUSED;
    if (got != MAP_FAILED && got != start)
        munmap(got, bytes);
    errno = saved;
    return claim;
}

bool os_unmap(void *start, size_t bytes)
{
    int saved = errno;
    bool done = munmap(start, bytes) == 0;
    errno = saved;
    return done;
}

static bool advise(void *start, size_t bytes, int advice)
{
    int saved = errno;
    bool done = madvise(start, bytes, advice) == 0;
    errno = saved;
    return done;
}

bool os_give_back(void *start, size_t bytes)
{
    return advise(start, bytes, MADV_DONTNEED);
}

void *os_map_for_one_process(void)
{
    void *page = map(os_page_bytes());
    if (page != NULL && !advise(page, os_page_bytes(), MADV_WIPEONFORK)) {
        os_unmap(page, os_page_bytes());
        page = NULL;
    }
    return page;
}

bool os_offer(void *start, size_t bytes)
{
    return advise(start, bytes, MADV_FREE) || advise(start, bytes, MADV_DONTNEED);
}

/* If the process has the most mappings it may have, the kernel refuses a new mapping, but still
 * clears an existing one. Linux before 6.12 unmaps the range before it checks whether there is
 * memory for the new mapping. */
bool os_renew(void *start, size_t bytes)
{
    int saved = errno;
    void *got =
        mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = saved;
    return got != MAP_FAILED || os_give_back(start, bytes);
}

/* If the kernel refuses, `to` is mapped anew: the kernel unmaps `to` before it checks whether it
 * can move anything. After a move, `from` is mapped anew, so that it becomes one mapping with the
 * memory around it. */
enum os_moved os_move(void *from, size_t from_bytes, void *to, size_t to_bytes)
{
    int saved = errno;
    bool moved = mremap(from, from_bytes, to_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to;
    errno = saved;
    if (moved)
        return os_renew(from, from_bytes) ? OS_MOVED : OS_MOVED_FROM_LOST;
    return os_renew(to, to_bytes) ? OS_NOT_MOVED : OS_NOT_MOVED_TO_LOST;
}

/* A mapping can only grow into addresses where nothing is mapped, so the memory behind it is
 * unmapped first. */
enum os_lengthened os_lengthen(void *start, size_t bytes, size_t more)
{
    int saved = errno;
    char *end = (char *)start + bytes;
    bool longer = munmap(end, more) == 0 && mremap(start, bytes, bytes + more, 0) == start;
    errno = saved;
    if (longer)
        return OS_LENGTHENED;
    return os_renew(end, more) ? OS_NOT_LENGTHENED : OS_NOT_LENGTHENED_BEHIND_LOST;
}

#ifndef MADV_GUARD_INSTALL /* Linux 6.13 */
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE  103
#endif

static bool protect(void *start, size_t bytes, int access)
{
    int saved = errno;
    bool done = mprotect(start, bytes, access) == 0;
    errno = saved;
    return done;
}

static _Atomic bool has_protected; /* os_guard() has used mprotect() */

static bool protect_from_all(void *start, size_t bytes)
{
    atomic_store_explicit(&has_protected, true, memory_order_relaxed);
    return protect(start, bytes, PROT_NONE);
}

/* Marks pages as a guard with MADV_GUARD_INSTALL. Sets `*unknown` to true if the kernel does not
 * know this advice, or does not allow it for locked memory: the caller then uses mprotect(). After
 * any other error the caller must not use mprotect(). The error may come from a sandbox, which
 * could end the program for that call. */
static bool install(void *start, size_t bytes, bool *unknown)
{
    int saved = errno;
    bool done = madvise(start, bytes, MADV_GUARD_INSTALL) == 0;
    *unknown = !done && errno == EINVAL;
    errno = saved;
    return done;
}

bool os_seal(void *start, size_t bytes)
{
    bool unknown;
    return install(start, bytes, &unknown) ||
           (unknown && os_give_back(start, bytes) && protect_from_all(start, bytes));
}

bool os_guard(void *start, size_t bytes)
{
    bool unknown;
    if (install(start, bytes, &unknown))
        return true;
    if (unknown)
        os_give_back(start, bytes);
    return unknown && protect_from_all(start, bytes);
}

bool os_unguard(void *start, size_t bytes)
{
    bool removed = advise(start, bytes, MADV_GUARD_REMOVE);
    if (atomic_load_explicit(&has_protected, memory_order_relaxed))
        removed = protect(start, bytes, PROT_READ | PROT_WRITE);
    return removed;
}

bool os_want_huge_pages(void *start, size_t bytes)
{
    return advise(start, bytes, MADV_HUGEPAGE);
}

bool os_want_small_pages(void *start, size_t bytes)
{
    return advise(start, bytes, MADV_NOHUGEPAGE);
}

/* Uses syscall(), because open(), read() and close() are cancellation points. */
bool os_gives_huge_pages_unasked(void)
{
    char text[64] = "";
    int saved = errno;
    long file = syscall(SYS_openat, AT_FDCWD, "/sys/kernel/mm/transparent_hugepage/enabled",
                        O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        (void)syscall(SYS_read, file, text, sizeof text - 1);
        syscall(SYS_close, file);
    }
    errno = saved;
    return strstr(text, "[always]") != NULL;
}

bool os_count_resident(void *start, size_t bytes, size_t *pages)
{
    unsigned char states[128]; /* small, because the stack may be small */
    int saved = errno;
    size_t step = sizeof states * os_page_bytes();
    size_t count = 0;
    size_t done = 0;
    for (size_t length; done < bytes; done += length) {
        length = bytes - done < step ? bytes - done : step;
        if (mincore((char *)start + done, length, states) != 0)
            break;
        for (size_t i = 0; i < length / os_page_bytes(); i++)
            count += states[i] & 1;
    }
    errno = saved;
    *pages = count;
    return done == bytes;
}

bool os_collapse(void *start)
{
    return advise(start, OS_HUGE_PAGE_BYTES, MADV_COLLAPSE);
}

uint64_t os_touch(void *start)
{
    uint64_t before = ticks_before();
    *(volatile char *)start = 0;
    return ticks_after() - before;
}

void *os_map(size_t bytes, size_t alignment, size_t offset_bytes)
{
    size_t page = os_page_bytes();
    if (alignment <= page)
        return map(bytes);

    /* Maps more than needed, so that the mapping contains an aligned address. Then unmaps head and
     * tail. */
    size_t spare = alignment - page;
    size_t total;
    if (__builtin_add_overflow(bytes, spare, &total))
        return NULL;
    char *all = map(total);
    if (all == NULL)
        return NULL;
    size_t head = (alignment - ((uintptr_t)all + offset_bytes) % alignment) % alignment;
    char *start = all + head;
    if (head > 0 && !os_unmap(all, head)) {
        os_unmap(all, total);
        return NULL;
    }
    if (head < spare && !os_unmap(start + bytes, spare - head)) {
        /* The head is not unmapped again, because another thread may have mapped something there
         * meanwhile. */
        os_unmap(start, total - head);
        return NULL;
    }
    return start;
}

uint64_t os_random(void)
{
    uint64_t random = 0;
    /* The kernel passes 16 random bytes. The C library uses the first 8 as its stack canary, so the
     * last 8 are taken here. */
    const void *sixteen = (const void *)getauxval(AT_RANDOM);
    if (sixteen != NULL)
        memcpy(&random, (const char *)sixteen + 8, sizeof random);
    return random;
}

static void wait_for(_Atomic uint32_t *word, uint32_t value, const struct timespec *time)
{
    int saved = errno;
    syscall(SYS_futex, word, FUTEX_WAIT_OF_PROCESS, value, time, NULL, 0);
    errno = saved;
}

static struct timespec time_of(unsigned ms)
{
    return (struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
}

void os_wait(_Atomic uint32_t *word, uint32_t value)
{
    wait_for(word, value, NULL);
}

void os_wait_ms(_Atomic uint32_t *word, uint32_t value, unsigned ms)
{
    struct timespec time = time_of(ms);
    wait_for(word, value, &time);
}

void os_wake(_Atomic uint32_t *word)
{
    int saved = errno;
    syscall(SYS_futex, word, FUTEX_WAKE_OF_PROCESS, 1, NULL, NULL, 0);
    errno = saved;
}

void os_sleep_ms(unsigned ms)
{
    int saved = errno;
    struct timespec time = time_of(ms);
    nanosleep(&time, NULL);
    errno = saved;
}

void os_say(const char *line, size_t length)
{
    int saved = errno;
    while (length > 0) {
        long written = syscall(SYS_write, STDERR_FILENO, line, length);
        if (written <= 0)
            break;
        line += written;
        length -= (size_t)written;
    }
    errno = saved;
}

_Noreturn void os_die(const char *line, size_t length)
{
    os_say(line, length);
    abort();
}
