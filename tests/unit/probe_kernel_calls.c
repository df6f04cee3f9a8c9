/* probe_kernel_calls.c - tests how the system calls of the allocator are counted. */
#include "probe/kernel_calls.h"

#include "test.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { MIB = 1 << 20 };

/* Addresses that nothing accesses. */
static const long start = INT64_C(5) << 40;

static struct profile_head head;

static void call(long number, long a, long b, long c, long result)
{
    session.head = &head;
    kernel_calls_note(number, (const long[3]){a, b, c}, result, 1, 0);
}

/* It once counted as a success for all system calls. */
TEST(that_a_call_must_be_tried_again_is_a_failure_unless_it_waits_for_a_futex)
{
    head = (struct profile_head){.magic = ""};
    call(SYS_mmap, 0, MIB, PROT_READ | PROT_WRITE, -EAGAIN);
    call(SYS_mremap, start, MIB, 2 * MIB, -EAGAIN);
    call(SYS_madvise, start, MIB, MADV_DONTNEED, -EAGAIN);
    call(SYS_mlockall, MCL_FUTURE, 0, 0, -EAGAIN);
    call(SYS_futex, start, FUTEX_WAIT, 1, -EAGAIN);
    call(SYS_futex, start, FUTEX_WAIT, 1, -EINTR);
    const enum profile_call failed[] = {PROFILE_MMAP, PROFILE_MREMAP, PROFILE_MADVISE_DONTNEED,
                                        PROFILE_OTHER, PROFILE_FUTEX_WAIT};
    for (size_t i = 0; i < COUNT_OF(failed); i++)
        CHECK(head.calls[failed[i]].failed == 1 && head.calls[failed[i]].bytes == 0);
    CHECK(head.calls[PROFILE_FUTEX_WAIT].calls == 2);
    CHECK(head.held_most == 0);
}

/* The file once had only the memory that was held at its moments, which are 4 ms or more apart. */
TEST(the_file_has_the_most_memory_that_was_held)
{
    uint64_t before = session.held_bytes;
    head = (struct profile_head){.held_most = before};
    for (long i = 0; i < 3; i++)
        call(SYS_mmap, 0, MIB, PROT_READ | PROT_WRITE, start + i * MIB);
    CHECK(head.held_most == before + UINT64_C(3) * MIB);
    call(SYS_munmap, start, MIB, 0, 0);
    call(SYS_munmap, start + MIB, MIB, 0, 0);
    call(SYS_mmap, 0, MIB, PROT_READ | PROT_WRITE, start);
    CHECK(session.held_bytes == before + UINT64_C(2) * MIB);
    CHECK(head.held_most == before + UINT64_C(3) * MIB);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
