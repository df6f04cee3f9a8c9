#define _GNU_SOURCE 1

#include "launch/memory.h"

#include "base/clock.h"

#include "launch_fake.h"
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define STAT_V2                                                                                    \
    "anon 1000\nfile 5000\nkernel 77\nanon_thp 9\nsock 11\nshmem 300\nactive_file "                \
    "2000\ninactive_file "                                                                         \
    "3500\nactive_anon 1\n"
#define STAT_V1                                                                                    \
    "cache 1\nrss 2\nshmem 3\nactive_file 4\ninactive_file 5\nhierarchical_memory_limit 6\n"       \
    "total_cache 5000\ntotal_rss 1000\ntotal_rss_huge 9\ntotal_shmem 300\ntotal_active_file "      \
    "2000\n"                                                                                       \
    "total_inactive_file 3500\n"

static struct fake fake_v2(void)
{
    struct fake fake = fake_make();
    fake_write(&fake, "memory.stat", STAT_V2);
    fake_write(&fake, "memory.peak", "9000\n");
    return fake;
}

static struct fake fake_v1(void)
{
    struct fake fake = fake_make();
    fake_write(&fake, "memory.stat", STAT_V1);
    fake_write(&fake, "memory.kmem.usage_in_bytes", "88\n");
    fake_write(&fake, "memory.max_usage_in_bytes", "9000\n");
    return fake;
}

/* The reading holds anonymous and shared memory. Lazily freed memory is the excess of the file
 * lists (active_file + inactive_file) over the page cache (file - shmem). */
TEST(memory_of_a_v2_cgroup_is_read_without_page_cache)
{
    struct fake fake = fake_v2();
    struct memory memory;
    struct peak_reading reading;
    REQUIRE(memory_open_v2(&memory, fake.folder));
    fake_write(&fake, "memory.peak", "9000\n"); /* memory_open_v2() has overwritten the file */
    REQUIRE(memory_read(&memory, &reading));
    CHECK(reading.anon_bytes == 1000);
    CHECK(reading.shmem_bytes == 300);
    CHECK(reading.lazy_bytes == 5500 - (5000 - 300));
    CHECK(reading.charged == PEAK_CHARGED_INTERVAL);
    CHECK(reading.other_bytes == (5000 - 300) + 77 + 11);
    CHECK(reading.charged_max_bytes == 9000);
    memory_close(&memory);
    fake_remove(&fake);
}

TEST(memory_of_a_v1_cgroup_includes_the_cgroups_below)
{
    struct fake fake = fake_v1();
    struct memory memory;
    struct peak_reading reading;
    REQUIRE(memory_open_v1(&memory, fake.folder));
    fake_write(&fake, "memory.max_usage_in_bytes", "9000\n");
    REQUIRE(memory_read(&memory, &reading));
    CHECK(reading.anon_bytes == 1000);
    CHECK(reading.shmem_bytes == 300);
    CHECK(reading.lazy_bytes == 5500 - (5000 - 300));
    CHECK(reading.other_bytes == (5000 - 300) + 88);
    CHECK(reading.charged == PEAK_CHARGED_INTERVAL);
    CHECK(reading.charged_max_bytes == 9000);
    memory_close(&memory);
    fake_remove(&fake);
}

/* Every reading resets the peak for the next interval. In a fake folder the reset overwrites the
 * first byte of the file. */
TEST(memory_reading_resets_the_peak)
{
    struct fake fake = fake_v1();
    struct memory memory;
    struct peak_reading reading;
    REQUIRE(memory_open_v1(&memory, fake.folder));
    fake_write(&fake, "memory.max_usage_in_bytes", "9000\n");
    REQUIRE(memory_read(&memory, &reading));
    CHECK(fake_holds(&fake, "memory.max_usage_in_bytes", "0000\n"));
    memory_close(&memory);
    fake_remove(&fake);
}

/* Before Linux 6.12 the peak of a cgroup cannot be reset. Before 5.19 the kernel does not report
 * it. */
TEST(memory_peak_that_cannot_be_written_is_for_the_lifetime)
{
    /* The test needs a file that cannot be written, and root can write any ordinary file. */
    if (geteuid() == 0)
        return;
    struct fake fake = fake_v2();
    fchmodat(fake.folder, "memory.peak", 0400, 0);
    struct memory memory;
    struct peak_reading reading;
    REQUIRE(memory_open_v2(&memory, fake.folder));
    REQUIRE(memory_read(&memory, &reading));
    CHECK(reading.charged == PEAK_CHARGED_LIFETIME);
    CHECK(reading.charged_max_bytes == 9000);
    memory_close(&memory);
    fake_remove(&fake);
}

TEST(memory_is_read_without_a_charged_peak)
{
    struct fake fake = fake_v2();
    unlinkat(fake.folder, "memory.peak", 0);
    struct memory memory;
    struct peak_reading reading;
    REQUIRE(memory_open_v2(&memory, fake.folder));
    REQUIRE(memory_read(&memory, &reading));
    CHECK(reading.anon_bytes == 1000);
    CHECK(reading.charged == PEAK_CHARGED_UNKNOWN);
    memory_close(&memory);
    fake_remove(&fake);
}

TEST(memory_cannot_be_opened_without_statistics)
{
    struct fake fake = fake_v2();
    unlinkat(fake.folder, "memory.stat", 0);
    struct memory memory;
    errno = 0;
    CHECK(!memory_open_v2(&memory, fake.folder));
    CHECK(errno == ENOENT);
    CHECK(memory.method == MEMORY_NOT_MEASURED);
    fake_remove(&fake);
}

/* Linux before 5.18 does not report the sum of all kernel memory. */
TEST(memory_of_the_kernel_is_added_up_if_its_sum_is_missing)
{
    struct fake fake = fake_v2();
    fake_write(
        &fake, "memory.stat",
        "anon 1\nfile 100\nkernel_stack 20\nslab 3\nshmem 0\nactive_file 1\ninactive_file 1\n");
    struct memory memory;
    struct peak_reading reading;
    REQUIRE(memory_open_v2(&memory, fake.folder));
    REQUIRE(memory_read(&memory, &reading));
    CHECK(reading.other_bytes == 123);
    memory_close(&memory);
    fake_remove(&fake);
}

/* A v1 cgroup may lack the counter of kernel memory. `other_bytes` then does not include kernel
 * memory. */
TEST(memory_of_the_kernel_may_be_unknown)
{
    struct fake fake = fake_v1();
    unlinkat(fake.folder, "memory.kmem.usage_in_bytes", 0);
    struct memory memory;
    struct peak_reading reading;
    REQUIRE(memory_open_v1(&memory, fake.folder));
    REQUIRE(memory_read(&memory, &reading));
    CHECK(reading.other_bytes == 5000 - 300);
    memory_close(&memory);
    fake_remove(&fake);
}

/* A line that is missing or garbled makes the reading fail. The next good reading succeeds. */
TEST(memory_reading_fails_on_garbage_and_recovers)
{
    static const char *const wrong[] = {
        "",
        "\n\n\n",
        "garbage",
        "anon 1000\nfile 5000\nshmem 300\nactive_file 2000\n",
        "anon x\nfile 5000\nshmem 300\nactive_file 2000\ninactive_file 3500\n",
        "anon -1\nfile 5000\nshmem 300\nactive_file 2000\ninactive_file 3500\n",
        "anon\nfile 5000\nshmem 300\nactive_file 2000\ninactive_file 3500\n",
        "anon 999999999999999999999\nfile 5000\nshmem 300\nactive_file 2000\ninactive_file 3500\n",
        "anon_thp 1000\nfile 5000\nshmem 300\nactive_file 2000\ninactive_file 3500\n",
        "  anon 1000\nfile 5000\nshmem 300\nactive_file 2000\ninactive_file 3500\n",
    };
    struct fake fake = fake_v2();
    struct memory memory;
    struct peak_reading reading;
    REQUIRE(memory_open_v2(&memory, fake.folder));
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        fake_write(&fake, "memory.stat", wrong[i]);
        errno = 0;
        CHECK(!memory_read(&memory, &reading));
        CHECK(errno == EBADMSG);
        fake_write(&fake, "memory.stat", STAT_V2);
        CHECK(memory_read(&memory, &reading));
    }
    fake_write(&fake, "memory.peak", "no number");
    CHECK(memory_read(&memory, &reading));
    CHECK(reading.charged == PEAK_CHARGED_UNKNOWN);
    memory_close(&memory);
    fake_remove(&fake);
}

TEST(memory_statistics_that_do_not_fit_are_an_error)
{
    struct fake fake = fake_v2();
    struct memory memory;
    struct peak_reading reading;
    REQUIRE(memory_open_v2(&memory, fake.folder));
    char long_text[20000];
    memset(long_text, '\n', sizeof long_text - 1);
    memcpy(long_text, STAT_V2, strlen(STAT_V2));
    long_text[sizeof long_text - 1] = '\0';
    fake_write(&fake, "memory.stat", long_text);
    errno = 0;
    CHECK(!memory_read(&memory, &reading));
    CHECK(errno == EFBIG);
    memory_close(&memory);
    fake_remove(&fake);
}

/* Here the page cache is larger than the file lists, because some of it is locked or between
 * lists. */
TEST(memory_lazily_freed_is_never_below_zero)
{
    struct fake fake = fake_v2();
    fake_write(&fake, "memory.stat",
               "anon 1000\nfile 5000\nshmem 0\nactive_file 1\ninactive_file 1\n");
    struct memory memory;
    struct peak_reading reading;
    REQUIRE(memory_open_v2(&memory, fake.folder));
    REQUIRE(memory_read(&memory, &reading));
    CHECK(reading.lazy_bytes == 0);
    memory_close(&memory);
    fake_remove(&fake);
}

/* Touches one byte of each page. The thread sanitizer would need memory to record each touch. */
__attribute__((no_sanitize("thread"))) static void touch(char *area, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 4096)
        area[at] = 1;
}

/* Starts a child that fills memory and waits to be killed. */
static pid_t start_holder(size_t bytes, bool lazy)
{
    int ready[2];
    if (pipe(ready) != 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* ends the child also if the test fails early */
        char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(area, bytes, MADV_NOHUGEPAGE);
        touch(area, bytes);
        if (lazy)
            madvise(area, bytes, MADV_FREE);
        ssize_t written = write(ready[1], "r", 1);
        (void)written;
        for (;;)
            pause();
    }
    char byte;
    if (read(ready[0], &byte, 1) != 1)
        pid = -1;
    close(ready[0]);
    close(ready[1]);
    return pid;
}

/* Returns an upper bound of the memory that a holder uses apart from the area that it fills.
 * Without a sanitizer this memory is small. With a sanitizer it is large, and a child has more of
 * it than its parent. */
static uint64_t own_bytes(void)
{
    struct process_memory own;
    return processes_read_memory(getpid(), &own) ? own.anon_bytes * 3 / 2 + (1 << 20) : 0;
}

static void end_holder(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* The kernel marks lazily freed pages in batches of 31 pages (124 KiB) per CPU. So the last pages
 * may not be marked yet when the launcher reads. The error has room for two batches. */
#define LAZY_BATCH_BYTES (256 << 10)

static bool near(uint64_t value, uint64_t expected, uint64_t error)
{
    return value + error >= expected && value <= expected + error;
}

/* The launcher reads the page tables of the processes in cgroup.procs, because the statistics of a
 * cgroup lag behind. */
TEST(memory_of_a_small_cgroup_is_read_from_page_tables)
{
    const size_t bytes = 3 << 20;
    pid_t pid = start_holder(bytes, true);
    REQUIRE(pid > 0);
    struct fake fake = fake_v2();
    char members[32];
    snprintf(members, sizeof members, "%d\n", (int)pid);
    fake_write(&fake, "cgroup.procs", members);
    struct memory memory;
    struct peak_reading reading;
    REQUIRE(memory_open_v2(&memory, fake.folder));
    memory_begin(&memory, clock_now_ns());
    usleep(2000);
    REQUIRE(memory_read(&memory, &reading));
    CHECK(reading.anon_bytes >= bytes);
    CHECK(reading.anon_bytes <= bytes + own_bytes());
    CHECK(near(reading.lazy_bytes, bytes, LAZY_BATCH_BYTES));
    CHECK(memory.look.cpu_ns > 0);
    memory_close(&memory);
    end_holder(pid);
    fake_remove(&fake);
}

TEST(memory_of_a_large_cgroup_is_not_read_from_page_tables)
{
    struct fake fake = fake_v2();
    fake_write(
        &fake, "memory.stat",
        "anon 900000000000\nfile 0\nshmem 0\nactive_file 0\ninactive_file 0\nunevictable 0\n");
    char members[32];
    snprintf(members, sizeof members, "%d\n", (int)getpid());
    fake_write(&fake, "cgroup.procs", members);
    struct memory memory;
    struct peak_reading reading;
    REQUIRE(memory_open_v2(&memory, fake.folder));
    memory_begin(&memory, clock_now_ns());
    usleep(2000);
    REQUIRE(memory_read(&memory, &reading));
    CHECK(reading.anon_bytes == UINT64_C(900000000000));
    CHECK(memory.look.cpu_ns == 0);
    memory_close(&memory);
    fake_remove(&fake);
}

TEST(memory_process_by_process_adds_up_descendants)
{
    const size_t bytes = 8 << 20;
    pid_t pids[] = {start_holder(bytes, false), start_holder(bytes, true)};
    struct memory memory;
    struct peak_reading reading;
    REQUIRE(memory_open_sampled(&memory, getpid()));
    REQUIRE(memory_read(&memory, &reading));
    CHECK(reading.anon_bytes >= 2 * bytes);
    CHECK(reading.anon_bytes <= 2 * bytes + 2 * own_bytes());
    CHECK(reading.charged == PEAK_CHARGED_UNKNOWN);
    end_holder(pids[0]);
    REQUIRE(memory_read(&memory, &reading));
    CHECK(reading.anon_bytes >= bytes);
    CHECK(reading.anon_bytes <= bytes + own_bytes());
    end_holder(pids[1]);
    REQUIRE(memory_read(&memory, &reading));
    CHECK(reading.anon_bytes == 0);
    memory_close(&memory);
}

enum { HELD_MIB = 96, BURST_MIB = 24, FOLLOWED_MANY = MEMORY_FOLLOWED_MAX + 6 };

/* The kernel counts the pages of a process in batches per CPU, so the high-water mark lacks a few
 * pages. */
#define HELD_SEEN_BYTES  ((uint64_t)HELD_MIB * 9 / 10 << 20)
#define BURST_SEEN_BYTES ((uint64_t)BURST_MIB * 9 / 10 << 20)

/* Fills memory and frees it. */
static void burst(size_t bytes)
{
    char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(area, bytes, MADV_NOHUGEPAGE);
    touch(area, bytes);
    munmap(area, bytes);
}

/* A process that takes one step for each byte that it receives through `go`. At the end of each
 * step, it sends a byte through `done`. */
struct stepper {
    pid_t pid;
    int go;
    int done;
};

static void step_done(void)
{
    ssize_t written = write(STDOUT_FILENO, "d", 1);
    (void)written;
}

static void await_step(void)
{
    char byte;
    if (read(STDIN_FILENO, &byte, 1) != 1)
        _exit(0);
}

/* The program that a stepper executes in its second step. In its next step, it fills and frees
 * memory once. */
static void become_small(void)
{
    step_done();
    await_step();
    burst((size_t)BURST_MIB << 20);
    step_done();
    await_step();
    _exit(0);
}

/* Starts a process that fills HELD_MIB of memory as its first step. In its second step, it executes
 * this test program again, which then calls become_small(). */
static struct stepper start_stepper(void)
{
    int go[2];
    int done[2];
    if (pipe(go) != 0 || pipe(done) != 0)
        return (struct stepper){.pid = -1};
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(go[0], STDIN_FILENO);
        dup2(done[1], STDOUT_FILENO);
        char *area = mmap(NULL, (size_t)HELD_MIB << 20, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(area, (size_t)HELD_MIB << 20, MADV_NOHUGEPAGE);
        touch(area, (size_t)HELD_MIB << 20);
        step_done();
        await_step();
        execl("/proc/self/exe", "launch_memory", "--become-small", (char *)NULL);
        _exit(1);
    }
    close(go[0]);
    close(done[1]);
    return (struct stepper){pid, go[1], done[0]};
}

static bool stepped(const struct stepper *stepper)
{
    char byte;
    return read(stepper->done, &byte, 1) == 1;
}

static bool step(const struct stepper *stepper)
{
    return write(stepper->go, "g", 1) == 1 && stepped(stepper);
}

static void end_stepper(const struct stepper *stepper)
{
    end_holder(stepper->pid);
    close(stepper->go);
    close(stepper->done);
}

/* Returns whether a further reading finds no growth. The kernel adds up the pages of a process with
 * a delay, so the first such readings may still find some. */
static bool has_settled(struct memory *memory)
{
    struct peak_reading reading = {.at_least_bytes = 1};
    for (int i = 0; i < 10 && reading.at_least_bytes != 0; i++)
        if (!memory_read(memory, &reading))
            return false;
    return reading.at_least_bytes == 0;
}

/* exec resets the high-water mark of a process. A burst of the new program is seen although the old
 * program was larger. */
TEST(memory_of_a_burst_is_seen_in_a_smaller_program_after_exec)
{
    struct memory memory;
    struct peak_reading reading;
    REQUIRE(memory_open_sampled(&memory, getpid()));
    struct stepper stepper = start_stepper();
    REQUIRE(stepper.pid > 0 && stepped(&stepper));
    REQUIRE(memory_read(&memory, &reading));
    CHECK(reading.at_least_bytes >= HELD_SEEN_BYTES);
    CHECK(has_settled(&memory)); /* the memory did not grow since the last reading */

    REQUIRE(step(&stepper)); /* exec */
    REQUIRE(memory_read(&memory, &reading));
    CHECK(reading.at_least_bytes < (uint64_t)HELD_MIB << 20);
    REQUIRE(step(&stepper)); /* the burst */
    REQUIRE(memory_read(&memory, &reading));
    CHECK(reading.anon_bytes < (uint64_t)HELD_MIB << 20);
    CHECK(reading.at_least_bytes >= BURST_SEEN_BYTES);
    CHECK(reading.at_least_bytes < (uint64_t)HELD_MIB << 20);
    CHECK(has_settled(&memory));
    end_stepper(&stepper);
    memory_close(&memory);
}

/* The burst is also seen if the launcher took no reading between the exec and the burst. */
TEST(memory_of_a_burst_is_seen_without_a_reading_after_exec)
{
    struct memory memory;
    struct peak_reading reading;
    REQUIRE(memory_open_sampled(&memory, getpid()));
    struct stepper stepper = start_stepper();
    REQUIRE(stepper.pid > 0 && stepped(&stepper));
    REQUIRE(memory_read(&memory, &reading));
    REQUIRE(step(&stepper) && step(&stepper));
    REQUIRE(memory_read(&memory, &reading));
    CHECK(reading.at_least_bytes >= BURST_SEEN_BYTES);
    CHECK(reading.at_least_bytes < (uint64_t)HELD_MIB << 20);
    end_stepper(&stepper);
    memory_close(&memory);
}

/* Only MEMORY_FOLLOWED_MAX processes are followed at a time. The entry of an ended process is
 * reused. */
TEST(memory_of_many_successive_processes_is_followed)
{
    const size_t bytes = 1 << 20;
    struct memory memory;
    struct peak_reading reading;
    REQUIRE(memory_open_sampled(&memory, getpid()));
    for (int i = 0; i < FOLLOWED_MANY; i++) {
        pid_t pid = start_holder(bytes, false);
        REQUIRE(pid > 0);
        REQUIRE(memory_read(&memory, &reading));
        CHECK(reading.at_least_bytes >= bytes / 2);
        end_holder(pid);
        REQUIRE(memory_read(&memory, &reading));
        CHECK(reading.at_least_bytes == 0);
    }
    memory_close(&memory);
}

TEST(memory_lazily_freed_is_seen_process_by_process)
{
    const size_t bytes = 8 << 20;
    struct memory memory;
    struct peak_reading reading;
    REQUIRE(memory_open_sampled(&memory, getpid()));
    pid_t pid = start_holder(bytes, true);
    memory_begin(&memory, clock_now_ns());
    usleep(2000);
    REQUIRE(memory_read(&memory, &reading));
    CHECK(near(reading.lazy_bytes, bytes, LAZY_BATCH_BYTES));
    memory_close(&memory);
    end_holder(pid);
}

TEST(memory_method_names_are_those_of_the_report)
{
    CHECK(strcmp(memory_method_name(MEMORY_CGROUP_V2), "cgroup v2") == 0);
    CHECK(strcmp(memory_method_name(MEMORY_CGROUP_V1), "cgroup v1") == 0);
    CHECK(strcmp(memory_method_name(MEMORY_SAMPLED), "sampled") == 0);
    CHECK(strcmp(memory_method_name(MEMORY_NOT_MEASURED), "not measured") == 0);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--become-small") == 0)
        become_small();
    return test_main(argc, argv);
}
