/* alloc_os.h - replaces os.h under the allocator: it calls the real functions, and can refuse any
 * call.
 *
 * A test program that is linked with src/alloc, and not with src/os, includes this header in its
 * only source file. The fields of `fake_os` make it behave as
 *
 *     a machine that refuses calls     refuse_call, refuse_more, refuse_after: by call number
 *     a machine with less memory       limit_bytes: an address-space limit, or overcommit mode 2
 *     a machine with larger OS pages   page_bytes: a multiple of the real size. Giving back a part
 *                                      of a page discards all of it, as the real machine does
 *     a trap for stray accesses        trapping: a touch of memory that was given back ends the
 *                                      program, unless a new run lies there. The memory of a new
 *                                      run reads as zero
 *
 * A call that gives back, moves or advises memory aborts the program if the memory does not begin
 * at an OS page or is not all within the region.
 */
#ifndef CAIRN_ALLOC_OS_H
#define CAIRN_ALLOC_OS_H

#include "alloc/slab.h"

#define os_page_bytes               real_page_bytes
#define os_map                      real_map
#define os_unmap                    real_unmap
#define os_claim                    real_claim
#define os_give_back                real_give_back
#define os_move                     real_move
#define os_lengthen                 real_lengthen
#define os_renew                    real_renew
#define os_want_huge_pages          real_want_huge_pages
#define os_touch                    real_touch
#define os_count_resident           real_count_resident
#define os_gives_huge_pages_unasked real_gives_huge_pages_unasked
#define os_collapse                 real_collapse
#define os_want_small_pages         real_want_small_pages
#include "../../src/os/os_linux.c"

#include "../../src/os/lock.c"
#undef os_page_bytes
#undef os_map
#undef os_unmap
#undef os_claim
#undef os_give_back
#undef os_move
#undef os_lengthen
#undef os_renew
#undef os_want_huge_pages
#undef os_touch
#undef os_count_resident
#undef os_gives_huge_pages_unasked
#undef os_collapse
#undef os_want_small_pages

#include <signal.h>
#include <stdio.h>

static struct {
    _Atomic size_t claimed_bytes;
    size_t limit_bytes; /* limit on mapped bytes; 0: no limit */
    size_t page_bytes;  /* 0: the real page size */
    _Atomic unsigned claim_count;
    _Atomic unsigned give_back_count;
    _Atomic unsigned call_count;    /* number of calls that could be refused */
    _Atomic unsigned refused_count; /* number of refusals, for any reason */
    unsigned refuse_call;           /* number of the first call to refuse, from 1; 0: none */
    unsigned refuse_more;           /* number of further calls to refuse after it */
    unsigned refuse_after;          /* refuses every call after this many; 0: none */
    unsigned occupied_first;        /* first claim whose addresses are occupied; 0: none */
    unsigned occupied_last;         /* last claim whose addresses are occupied */
    /* Number of claims, from the next one on, whose addresses are occupied. Claims of less than 2
     * MiB do not count. */
    unsigned occupied_chunks;
    /* Addresses of a mapping of somebody else; 0 and 0: none. */
    uintptr_t foreign_from;
    uintptr_t foreign_to;
    uintptr_t addresses_end; /* first address that does not exist; 0: no limit */
    /* Number of calls of os_lengthen() that unmapped the memory behind the block. */
    unsigned behind_lost;
    /* A refused move, lengthening or renewal may unmap memory, as it may in Linux. */
    bool losing;
    bool refuses_moves;         /* refuses os_move() and os_lengthen() */
    void (*while_moving)(void); /* called by os_move(); may be NULL */
    bool trapping;
    /* Duration of the first touch after huge pages were requested; 0: small_touch_ticks. */
    uint64_t huge_touch_ticks;
    uint64_t small_touch_ticks;
    _Atomic bool huge_is_next;
    _Atomic unsigned huge_count;
    _Atomic size_t huge_bytes; /* of the last request for huge pages */
    _Atomic unsigned small_count;
    unsigned resident_of_512; /* what os_count_resident() returns; 0: all pages */
    unsigned collapse_count;
    bool refuses_collapse;
    bool gives_unasked;  /* the result of os_gives_huge_pages_unasked() */
    bool refuses_counts; /* refuses os_count_resident() */
    unsigned counts;     /* number of calls of os_count_resident() */
} fake_os;

size_t os_page_bytes(void);
void *os_map(size_t bytes, size_t alignment, size_t offset_bytes);
bool os_unmap(void *start, size_t bytes);
enum os_claimed os_claim(void *start, size_t bytes);
bool os_give_back(void *start, size_t bytes);
enum os_moved os_move(void *from, size_t from_bytes, void *to, size_t to_bytes);
enum os_lengthened os_lengthen(void *start, size_t bytes, size_t more);
bool os_renew(void *start, size_t bytes);
bool os_want_huge_pages(void *start, size_t bytes);
bool os_want_small_pages(void *start, size_t bytes);
uint64_t os_touch(void *start);
bool os_gives_huge_pages_unasked(void);
bool os_count_resident(void *start, size_t bytes, size_t *pages);
bool os_collapse(void *start);

static bool fake_refuses(void)
{
    unsigned call = atomic_fetch_add(&fake_os.call_count, 1) + 1;
    bool refused = (fake_os.refuse_after > 0 && call > fake_os.refuse_after) ||
                   (fake_os.refuse_call > 0 && call >= fake_os.refuse_call &&
                    call - fake_os.refuse_call <= fake_os.refuse_more);
    atomic_fetch_add(&fake_os.refused_count, refused);
    return refused;
}

size_t os_page_bytes(void)
{
    return fake_os.page_bytes > 0 ? fake_os.page_bytes : real_page_bytes();
}

void *os_map(size_t bytes, size_t alignment, size_t offset_bytes)
{
    return fake_refuses() ? NULL : real_map(bytes, alignment, offset_bytes);
}

bool os_unmap(void *start, size_t bytes)
{
    return !fake_refuses() && real_unmap(start, bytes);
}

/* Returns whether memory at `start` counts as occupied, although the kernel might map it. Address 0
 * counts as occupied, because root may map it. In a build with the thread sanitizer, all addresses
 * from 2^39 on count as occupied instead, because the sanitizer would let us map its own memory. */
static bool fake_has_itself(const void *start)
{
#ifdef __SANITIZE_THREAD__
    return (uintptr_t)start >> 39 != 0;
#else
    return start == NULL;
#endif
}

enum os_claimed os_claim(void *start, size_t bytes)
{
    unsigned claim_number = atomic_fetch_add(&fake_os.claim_count, 1) + 1;
    if (fake_refuses())
        return OS_REFUSED;
    if (fake_os.addresses_end > 0 && (uintptr_t)start + bytes > fake_os.addresses_end)
        return OS_REFUSED;
    if (fake_os.occupied_first > 0 && claim_number >= fake_os.occupied_first &&
        claim_number <= fake_os.occupied_last)
        return OS_OCCUPIED;
    if ((uintptr_t)start < fake_os.foreign_to && (uintptr_t)start + bytes > fake_os.foreign_from)
        return OS_OCCUPIED;
    if (fake_os.occupied_chunks > 0 && bytes >= (1 << 21)) {
        fake_os.occupied_chunks--;
        return OS_OCCUPIED;
    }
    if (fake_os.limit_bytes > 0 && fake_os.claimed_bytes + bytes > fake_os.limit_bytes) {
        atomic_fetch_add(&fake_os.refused_count, 1);
        return OS_REFUSED;
    }
    enum os_claimed claim = fake_has_itself(start) ? OS_OCCUPIED : real_claim(start, bytes);
    if (claim == OS_CLAIMED)
        atomic_fetch_add(&fake_os.claimed_bytes, bytes);
    return claim;
}

static void fake_expect(bool right, const char *otherwise)
{
    if (!right) {
        fprintf(stderr, "os: %s\n", otherwise);
        abort();
    }
}

static void fake_expect_ours(const char *start, size_t bytes)
{
    fake_expect((uintptr_t)start % os_page_bytes() == 0 && bytes > 0,
                "the memory of a call is empty or does not begin at an OS page");
    fake_expect(region_has(region_index(start)) && region_has(region_index(start + bytes - 1)),
                "the memory of a call reaches beyond the region");
}

bool os_give_back(void *start, size_t bytes)
{
    atomic_fetch_add(&fake_os.give_back_count, 1);
    bytes = (bytes + os_page_bytes() - 1) & ~(os_page_bytes() - 1);
    fake_expect_ours(start, bytes);
    if (fake_refuses() || !real_give_back(start, bytes))
        return false;
    if (fake_os.trapping)
        fake_expect(mprotect(start, bytes, PROT_NONE) == 0,
                    "the trap cannot protect memory that was given back");
    return true;
}

/* A refused move fails in one of the three ways in which the kernel's mremap can fail. */
enum os_moved os_move(void *from, size_t from_bytes, void *to, size_t to_bytes)
{
    fake_expect_ours(from, from_bytes);
    fake_expect_ours(to, to_bytes);
    if (fake_os.while_moving != NULL)
        fake_os.while_moving();
    if (!fake_refuses() && !fake_os.refuses_moves)
        return real_move(from, from_bytes, to, to_bytes);
    switch (fake_os.losing ? fake_os.refused_count % 3 : 0) {
    case 0:
        real_renew(to, to_bytes);
        return OS_NOT_MOVED;
    case 1:
        real_unmap(to, to_bytes);
        return OS_NOT_MOVED_TO_LOST;
    default: {
        enum os_moved moved = real_move(from, from_bytes, to, to_bytes);
        if (moved != OS_MOVED)
            return moved;
        real_unmap(from, from_bytes);
        return OS_MOVED_FROM_LOST;
    }
    }
}

/* A refused call fails in one of the two ways in which the kernel's mremap can fail. */
enum os_lengthened os_lengthen(void *start, size_t bytes, size_t more)
{
    fake_expect_ours(start, bytes + more);
    if (!fake_refuses() && !fake_os.refuses_moves)
        return real_lengthen(start, bytes, more);
    if (fake_os.losing && fake_os.refused_count % 2 == 0) {
        real_unmap((char *)start + bytes, more);
        fake_os.behind_lost++;
        return OS_NOT_LENGTHENED_BEHIND_LOST;
    }
    real_renew((char *)start + bytes, more);
    return OS_NOT_LENGTHENED;
}

bool os_renew(void *start, size_t bytes)
{
    fake_expect_ours(start, bytes);
    if (!fake_refuses())
        return real_renew(start, bytes);
    if (fake_os.losing)
        real_unmap(start, bytes);
    return false;
}

bool os_want_huge_pages(void *start, size_t bytes)
{
    fake_expect_ours(start, bytes);
    if (fake_refuses() || !real_want_huge_pages(start, bytes))
        return false;
    fake_os.huge_is_next = true;
    fake_os.huge_count++;
    fake_os.huge_bytes = bytes;
    return true;
}

/* Returns the duration of a touch, but touches nothing: tests check which pages were touched. */
uint64_t os_touch(void *start)
{
    (void)start;
    bool huge = fake_os.huge_is_next && fake_os.huge_touch_ticks != 0;
    fake_os.huge_is_next = false;
    return huge ? fake_os.huge_touch_ticks : fake_os.small_touch_ticks;
}

bool os_gives_huge_pages_unasked(void)
{
    return fake_os.gives_unasked;
}

bool os_count_resident(void *start, size_t bytes, size_t *pages)
{
    fake_expect_ours(start, bytes);
    fake_os.counts++;
    size_t all = bytes / os_page_bytes();
    bool mapped = real_count_resident(start, bytes, pages);
    *pages = fake_os.resident_of_512 == 0 ? all : all * fake_os.resident_of_512 / 512;
    return !fake_refuses() && !fake_os.refuses_counts && mapped;
}

/* Stands for the kernel's collapse of 2 MiB into a huge page. Copies nothing. */
bool os_collapse(void *start)
{
    fake_expect_ours(start, OS_HUGE_PAGE_BYTES);
    fake_os.collapse_count++;
    return !fake_refuses() && !fake_os.refuses_collapse;
}

bool os_want_small_pages(void *start, size_t bytes)
{
    fake_expect_ours(start, bytes);
    if (fake_refuses() || !real_want_small_pages(start, bytes))
        return false;
    fake_os.small_count++;
    return true;
}

/* --- the trap --------------------------------------------------------------------------------- */

/* Returns whether the slice belongs to a run. In a large block only the record of the first slice
 * names the kind of the run. */
static bool fake_in_use(size_t index)
{
    size_t first = index;
    while (first > 0 && slab_at(first)->kind == RUN_NONE)
        first--;
    return first > 0 && (slab_at(first)->kind == RUN_LARGE ? index - first < slab_at(first)->slices
                                                           : first == index);
}

static void fake_touched(int number, siginfo_t *information, void *context)
{
    (void)number, (void)context;
    char *address = information->si_addr;
    size_t index = region_index(address);
    fake_expect(region_has(index), "a crash outside the region");
    fake_expect(fake_in_use(index),
                "memory that was given back is touched while no run lies there");
    fake_expect(mprotect(region_address(index), SLICE_BYTES, PROT_READ | PROT_WRITE) == 0,
                "the trap cannot be opened");
}

static inline void fake_set_trap(void)
{
    struct sigaction action = {.sa_sigaction = fake_touched, .sa_flags = SA_SIGINFO | SA_NODEFER};
    fake_expect(sigaction(SIGSEGV, &action, NULL) == 0, "the handler of SIGSEGV cannot be set");
    fake_os.trapping = true;
}

#endif
