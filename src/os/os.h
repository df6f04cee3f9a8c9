/* os.h - the memory of the machine, as it is asked for and given back.
 *
 * Sizes and addresses are multiples of os_page_bytes(), unless said otherwise. True for every function:
 *
 *     a refusal by the kernel is a return value, and nothing has changed
 *     errno is left as it was
 *     any thread may call it, also within malloc: nothing here allocates or takes a lock
 */
#ifndef CAIRN_OS_OS_H
#define CAIRN_OS_OS_H

#include "base/base.h"

/* What a transparent huge page usually has. Where it is another size, memory aligned to this gains nothing, and
 * nothing else depends on it. */
#define OS_HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Of the running kernel: 4, 16 or 64 KiB. A power of two. */
size_t os_page_bytes(void);

/* `bytes` of private memory that reads as zero, such that the address plus `offset_bytes` is a multiple of
 * `alignment`. That is a power of two; where it is no more than an OS page, it is met anyway, and the offset may be
 * any. NULL when refused. */
void *os_map(size_t bytes, size_t alignment, size_t offset_bytes);

/* `bytes` of private memory that reads as zero at exactly `start`, where nothing may lie yet. */
enum os_claimed {
    OS_CLAIMED,
    OS_OCCUPIED, /* somebody else's is there */
    OS_REFUSED,  /* no such address, or no memory */
};
enum os_claimed os_claim(void *start, size_t bytes);

/* Any part of what os_map() or os_claim() gave. Refused where the kernel would have to split a mapping and may have no more of
 * them. */
bool os_unmap(void *start, size_t bytes);

/* The address space stays, its contents are gone: it reads as zero. Refused for locked memory, which is as it was. */
bool os_give_back(void *start, size_t bytes);

/* The same for when the kernel needs memory: until then the contents are what they were or zero, and resident. At once where the
 * kernel cannot wait (before Linux 4.5). */
bool os_offer(void *start, size_t bytes);

/* Moves pages instead of bytes: what was at `from` is then at `to`, where memory is mapped whose contents nobody needs,
 * followed by zeroes up to `to_bytes`; `from` reads as zero and is not resident. Neither overlaps the other. `from` is one
 * mapping: as os_claim() or os_move() made it, and at most lengthened by os_lengthen(). */
enum os_moved {
    OS_MOVED,
    OS_NOT_MOVED,         /* refused: what was at `to` is gone, and nothing else */
    OS_MOVED_FROM_LOST,   /* moved; `from` is no memory any more */
    OS_NOT_MOVED_TO_LOST, /* refused; `to` is no memory any more */
};
enum os_moved os_move(void *from, size_t from_bytes, void *to, size_t to_bytes);

/* Makes what os_move() made, `bytes` long, longer by `more`, where memory is mapped that nobody needs: it reads as zero, and
 * the whole can be moved again. */
enum os_lengthened {
    OS_LENGTHENED,
    OS_NOT_LENGTHENED,             /* refused: it is as it was, and what is behind reads as zero */
    OS_NOT_LENGTHENED_BEHIND_LOST, /* refused: it is as it was; what is behind is no memory any more */
};
enum os_lengthened os_lengthen(void *start, size_t bytes, size_t more);

/* As os_give_back(), and makes one mapping again of what os_move() split. */
bool os_renew(void *start, size_t bytes);

/* Asks for huge pages on first touch in whole aligned ones within. True: the kernel will consider it. */
bool os_want_huge_pages(void *start, size_t bytes);

/* The opposite, for what is touched from now on. */
bool os_want_small_pages(void *start, size_t bytes);

/* Puts what lies in OS_HUGE_PAGE_BYTES from `start` on, a multiple of that, into one huge page, now: contents stay, and what was not
 * resident is. Takes as long as copying does, and others wait who take a page fault meanwhile. False: refused; it is as it was. */
bool os_collapse(void *start);

/* Writes the zero that is there into an OS page that nobody has touched. Returns what that took, in ticks (ticks.h). */
uint64_t os_touch(void *start);

/* 64 bits that differ from process to process, without a system call; the same every time in one process. */
uint64_t os_random(void);

/* Sleeps while `*word` is `value`, at most until somebody wakes the word; may return early. os_wake() wakes one. */
void os_wait(_Atomic uint32_t *word, uint32_t value);
void os_wait_ms(_Atomic uint32_t *word, uint32_t value, unsigned ms);
void os_wake(_Atomic uint32_t *word);

void os_sleep_ms(unsigned ms);

/* One line to stderr, `line` with its newline; no point of cancellation. */
void os_say(const char *line, size_t length);

/* The same, and abort(). The heap cannot be trusted any more. */
_Noreturn void os_die(const char *line, size_t length);

#endif
