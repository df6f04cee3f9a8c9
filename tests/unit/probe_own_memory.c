/* probe_own_memory.c - tests that the probe's own memory is counted, and only what is resident. */
#include "probe/own_memory.h"

#include "probe/direct_syscall.h"
#include "probe/handed_out.h"
#include "probe/own_stack.h"
#include "probe/owners.h"
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

/* Returns the size of all mappings that get no huge pages, or of the others. */
static size_t mapped_bytes(bool without_huge)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    size_t sum = 0, kib = 0;
    for (char line[4096]; file != NULL && fgets(line, sizeof line, file) != NULL;) {
        (void)sscanf(line, "Size: %zu kB", &kib);
        if (strncmp(line, "VmFlags:", 8) == 0 && (strstr(line, " nh") != NULL) == without_huge)
            sum += kib << 10;
    }
    if (file != NULL)
        fclose(file);
    return sum;
}

/* The share of huge pages is that of the program. The kernel once gave them to these records. */
TEST(the_records_of_addresses_get_no_huge_pages)
{
    if (access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0)
        return;
    const void *block = (const void *)(UINT64_C(500) << HANDED_OUT_LEAF_SHIFT);
    const struct owner owner = {.thread = 1, .group = PROFILE_SMALL};
    size_t before = mapped_bytes(false), without = mapped_bytes(true);
    CHECK(handed_out_add(block, 100) && handed_out_hide((uintptr_t)block, 4096));
    owners_note(block, owner);
    CHECK(mapped_bytes(true) >= without + 32 * MIB);
    CHECK(mapped_bytes(false) < before + MIB);
    own_memory_begin();
    CHECK(mapped_bytes(false) < before - 16 * MIB);
}

/* Each stack once had a mapping of its own, and only 256 mappings are remembered. The others
 * counted as memory of the program. */
TEST(the_signal_stacks_of_many_threads_are_memory_of_the_probe)
{
    enum { THREADS = 600, WRITTEN = 64 << 10 };
    static struct thread_state threads[THREADS];
    const stack_t none = {.ss_flags = SS_DISABLE};
    stack_t was;
    REQUIRE(direct_call3(SYS_sigaltstack, 0, (long)&was, 0) == 0);
    uint64_t before = own_memory_resident(true, 0).private, written = 0;
    for (size_t i = 0; i < THREADS; i++) {
        direct_call3(SYS_sigaltstack, (long)&none, 0, 0);
        own_stack_arm(&threads[i]);
        if (threads[i].signal_stack == NULL)
            continue;
        memset(threads[i].signal_stack, 1, WRITTEN);
        written += WRITTEN;
    }
    direct_call3(SYS_sigaltstack, (long)&was, 0, 0);
    if (written == 0)
        SKIP("no thread gets a signal stack here");
    CHECK(written == (uint64_t)THREADS * WRITTEN);
    CHECK(own_memory_resident(true, 0).private >= before + written);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
