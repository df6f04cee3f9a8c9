/* probe_own_memory.c - tests that the probe's own memory is counted, and only what is resident. */
#include "probe/own_memory.h"

#include "probe/direct_syscall.h"
#include "test.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static bool counts_what_is_written(void)
{
    char *first = own_memory_map(4 * MIB);
    if (first == NULL)
        return false;
    uint64_t before = own_memory_resident(true, 0).private;
    memset(first, 1, MIB);
    uint64_t after = own_memory_resident(true, 0).private;
    memset(first, 1, 4 * MIB);
    uint64_t last = own_memory_resident(true, 0).private;
    return after >= before + MIB && after < before + 3 * MIB && last >= before + 4 * MIB &&
           last < before + 5 * MIB;
}

TEST(own_memory_is_counted_when_it_is_written)
{
    CHECK(counts_what_is_written());
}

/* Makes ioctl() fail from now on, as PAGEMAP_SCAN does before Linux 6.7. The filter is installed by
 * a direct call, because the probe looks at its own memory no more after it has seen a filter. */
static bool forbid_ioctl(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof rules / sizeof rules[0], rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           direct_call3(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&filter) == 0;
}

TEST(without_the_scan_of_new_kernels_pages_are_read_one_by_one)
{
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0)
        _exit(!forbid_ioctl() ? 77 : counts_what_is_written() ? 0 : 1);
    int status = 1;
    REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77);
}

/* The kernel maps its page of zeroes where memory is read that was never written. That page is not
 * resident. */
TEST(own_memory_that_was_only_read_is_not_counted)
{
    volatile char *start = own_memory_map_sparse(4 * MIB);
    REQUIRE(start != NULL);
    uint64_t before = own_memory_resident(true, 0).private;
    char sum = 0;
    for (size_t at = 0; at < 4 * MIB; at += 4096)
        sum = (char)(sum + start[at]);
    CHECK(sum == 0 && own_memory_resident(true, 0).private < before + MIB / 4);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
