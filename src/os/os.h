/* os.h - the system calls of the allocator and the arena: memory, sleep, and messages.
 *
 * Sizes and addresses are multiples of os_page_bytes(), unless a comment says otherwise. True for
 * every function:
 *
 *     a refusal by the kernel is a return value, and nothing has changed unless the comment says so
 *     errno keeps its value
 *     any thread may call it, also within malloc: it allocates nothing and takes no lock
 */
#ifndef CAIRN_OS_OS_H
#define CAIRN_OS_OS_H

#include "base/base.h"

/* The usual size of a transparent huge page. If the kernel uses another size, requests for huge
 * pages gain less or nothing, but everything still works. */
#define OS_HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Returns the size of an OS page: 4, 16 or 64 KiB. */
size_t os_page_bytes(void);

/* Maps `bytes` of private memory that reads as zero. The address plus `offset_bytes` is a multiple
 * of `alignment`, a power of two. If `alignment` is at most an OS page, the address is a multiple
 * of an OS page, and the offset is ignored. Returns NULL if the kernel refuses. */
void *os_map(size_t bytes, size_t alignment, size_t offset_bytes);

/* Maps `bytes` of private memory that reads as zero at exactly `start`, if nothing is mapped there
 * yet. */
enum os_claimed {
    OS_CLAIMED,
    OS_OCCUPIED, /* something is mapped there */
    OS_REFUSED,  /* no such address, or no memory */
};
enum os_claimed os_claim(void *start, size_t bytes);

/* Maps one OS page that reads as zero. In the child of a fork the page reads as zero again. Returns
 * NULL if the kernel refuses, or is older than Linux 4.14. */
void *os_map_for_one_process(void);

/* Unmaps memory that os_map() or os_claim() mapped, or any part of it. Returns false if the kernel
 * would have to split a mapping and the process has the most mappings it may have. */
bool os_unmap(void *start, size_t bytes);

/* Gives the pages back to the machine. The addresses stay mapped and read as zero. Returns false
 * for locked memory, which is unchanged. */
bool os_give_back(void *start, size_t bytes);

/* Offers the pages to the kernel, which takes them when it needs memory. Until then they stay
 * resident. From now on each page reads as before, or as zero if the kernel took it. A kernel
 * before Linux 4.5 takes the pages at once. */
bool os_offer(void *start, size_t bytes);

/* Moves pages from `from` to `to` without copying bytes. `to` must be mapped, and its content is
 * lost. After the move, `to` holds the content of `from`, followed by zeroes up to `to_bytes`.
 * `from` then reads as zero and is not resident. The two do not overlap. `from` must be one
 * mapping, as made by os_claim() or os_move(), and possibly lengthened by os_lengthen(). */
enum os_moved {
    OS_MOVED,
    OS_NOT_MOVED,         /* refused; `to` reads as zero, usually as a new mapping */
    OS_MOVED_FROM_LOST,   /* moved; `from` is no longer mapped */
    OS_NOT_MOVED_TO_LOST, /* refused; `to` is no longer mapped */
};
enum os_moved os_move(void *from, size_t from_bytes, void *to, size_t to_bytes);

/* Lengthens a mapping that os_move() made. The mapping has `bytes` bytes before the call, and
 * `bytes` + `more` bytes if the call succeeds. The memory behind the mapping must be mapped, and
 * its content is lost. The added part reads as zero, and the lengthened mapping can be moved
 * again. */
enum os_lengthened {
    OS_LENGTHENED,
    /* The mapping is unchanged. The memory behind it reads as zero, usually as a new mapping.
     * With ..._BEHIND_LOST, it is no longer mapped. */
    OS_NOT_LENGTHENED,
    OS_NOT_LENGTHENED_BEHIND_LOST,
};
enum os_lengthened os_lengthen(void *start, size_t bytes, size_t more);

/* Replaces a range by a new mapping that reads as zero. So mappings that os_move() has split become
 * one again. If the kernel refuses a new mapping, the function clears the existing one instead.
 * Returns false if the kernel refuses both. Parts of the range may then be unmapped. */
bool os_renew(void *start, size_t bytes);

/* Makes a range a guard: each access to it is a segmentation fault, and its memory is given back
 * unless it is locked. Returns false if the kernel refuses; the memory may have been given back
 * then, too. os_unguard() removes the guard. Linux 6.13 marks the pages in place. On older kernels,
 * and for locked memory, each guard is a mapping of its own. */
bool os_guard(void *start, size_t bytes);

/* Like os_guard(), but fails if the memory is locked. */
bool os_seal(void *start, size_t bytes);
bool os_unguard(void *start, size_t bytes);

/* Asks the kernel to use huge pages on the first touch of each whole aligned huge page within the
 * range. Returns true if the kernel will consider it. */
bool os_want_huge_pages(void *start, size_t bytes);

/* Asks the kernel to use small pages on first touches from now on. Returns false if the kernel
 * refuses. */
bool os_want_small_pages(void *start, size_t bytes);

/* Returns whether the machine's setting of huge pages is `always`: the kernel then gives them
 * without a request. Returns false if the setting cannot be read. A sandbox may kill the process
 * for the calls that read a file. */
bool os_gives_huge_pages_unasked(void);

/* Counts the OS pages of a mapped range that are resident. Returns false if the kernel does not
 * say. A sandbox may kill the process for this call. */
bool os_count_resident(void *start, size_t bytes, size_t *pages);

/* Collapses OS_HUGE_PAGE_BYTES from `start` on, a multiple of that size, into one huge page at
 * once. The content stays, and all of it becomes resident. The call takes as long as copying does,
 * and other threads wait if they take a page fault meanwhile. Returns false if the kernel
 * refuses. */
bool os_collapse(void *start);

/* Writes a zero to an OS page that was never touched. Returns the time this took in ticks
 * (ticks.h). */
uint64_t os_touch(void *start);

/* Returns 64 random bits without a system call. They are the same at every call within a process
 * and in its children of fork(), and differ between other processes. */
uint64_t os_random(void);

/* os_wait() sleeps if `*word` is `value`, until os_wake() is called for the word. os_wait() may
 * return early. os_wait_ms() does the same, but sleeps at most `ms` milliseconds. os_wake() wakes
 * one thread that sleeps on the word. */
void os_wait(_Atomic uint32_t *word, uint32_t value);
void os_wait_ms(_Atomic uint32_t *word, uint32_t value, unsigned ms);
void os_wake(_Atomic uint32_t *word);

void os_sleep_ms(unsigned ms);

/* Writes one line, which includes its newline, to stderr. The function is not a cancellation
 * point. */
void os_say(const char *line, size_t length);

/* Writes one line to stderr and calls abort(), because the heap is corrupt. */
_Noreturn void os_die(const char *line, size_t length);

#endif
