/* witness_sandbox.c - tests that the witness counts installed filters of system calls, and no
 * refused ones. */
#define _GNU_SOURCE 1
#include "witness/sandbox.h"

#include "test.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HELD = 1, REFUSED = 77 };

static struct sock_filter allow_all[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
static struct sock_fprog program = {.len = 1, .filter = allow_all};
static unsigned counted; /* filters of the other thread that the witness counted */
static int ready[2], done[2];

/* Installs a filter of its own, so that the other thread cannot give it another one. */
static void *install_own(void *installed)
{
    char byte = 0;
    *(bool *)installed = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
    counted = sandbox_filters;
    (void)!write(ready[1], &byte, 1);
    (void)!read(done[0], &byte, 1);
    return NULL;
}

/* Returns the result as an exit code: HELD, or REFUSED if the kernel refuses filters. */
static int share_filter(void)
{
    pthread_t other;
    bool installed = false;
    char byte = 0;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || pipe(ready) != 0 || pipe(done) != 0 ||
        pthread_create(&other, NULL, install_own, &installed) != 0)
        return REFUSED;
    (void)!read(ready[0], &byte, 1);
    long result =
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    bool held = result > 0 && counted == 1 && sandbox_filters == 1 && sandbox_steps == 2;
    (void)!write(done[1], &byte, 1);
    pthread_join(other, NULL);
    return !installed ? REFUSED : held ? HELD : 0;
}

/* The witness once took the result of a refused filter of all threads, the number of a thread, for
 * that of an installed filter. */
TEST(a_filter_that_a_thread_cannot_get_is_not_counted)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(share_filter());
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == REFUSED)
        SKIP("the kernel refuses filters of system calls");
    CHECK(WEXITSTATUS(status) == HELD);
}

/* libseccomp asks in this way whether the kernel has filters. */
TEST(a_refused_filter_changes_nothing)
{
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) == -1);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) == -1);
    CHECK(sandbox_filters == 0 && sandbox_steps == 0);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
