#define _GNU_SOURCE 1

#include "launch/processes.h"

#include "launch/file.h"

#include "launch_fake.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define STATUS                                                                                     \
    "Name:\tRssAnon: 1 kB\nState:\tS\nVmHWM:\t    5000 kB\nVmRSS:\t 4000 kB\nRssAnon:\t 1000 kB\n" \
    "RssFile:\t  2500 kB\nRssShmem:\t  500 kB\n"

TEST(process_memory_is_parsed_from_its_status)
{
    struct process_memory memory;
    REQUIRE(processes_parse_memory(STATUS, &memory));
    CHECK(memory.anon_bytes == 1000 * 1024);
    CHECK(memory.file_bytes == 2500 * 1024);
    CHECK(memory.shmem_bytes == 500 * 1024);
    CHECK(memory.highest_bytes == 5000 * 1024);
}

static void count_number(void *count, uint64_t number)
{
    *(uint64_t *)count += number != 0;
}

TEST(a_descriptor_that_is_no_folder_has_no_numbers_and_is_an_error)
{
    int pipes[2];
    uint64_t count = 0;
    REQUIRE(pipe(pipes) == 0);
    CHECK(!file_each_number(pipes[0], count_number, &count) && count == 0);
    int folder = open("/proc", O_RDONLY | O_DIRECTORY);
    REQUIRE(folder >= 0);
    CHECK(file_each_number(folder, count_number, &count) && count > 0);
    close(folder);
    close(pipes[0]);
    close(pipes[1]);
}

/* Kernel threads and zombies have no memory. */
TEST(process_memory_is_unknown_if_fields_are_missing)
{
    struct process_memory memory;
    CHECK(!processes_parse_memory("Name:\tkworker\nState:\tI\n", &memory));
    CHECK(!processes_parse_memory("", &memory));
    CHECK(!processes_parse_memory("VmHWM: 1 kB\nRssAnon: none\nRssFile: 1 kB\nRssShmem: 1 kB\n",
                                  &memory));
    struct process_share share;
    CHECK(!processes_parse_share("Pss: 12 kB\n", &share));
    REQUIRE(processes_parse_share("Pss: 12 kB\nPss_Anon: 5 kB\nPss_Shmem: 3 kB\nLazyFree: 2 kB\n",
                                  &share));
    CHECK(share.anon_bytes == 5120 && share.shmem_bytes == 3072 && share.lazy_bytes == 2048);
}

/* The launcher reads the times of a process after its end. */
TEST(process_schedule_is_read_of_a_living_process_and_of_a_zombie)
{
    struct process_schedule schedule = {1, 1};
    CHECK(!processes_read_schedule(0, &schedule));
    CHECK(schedule.ran_ns == 0 && schedule.queued_ns == 0);
    /* The kernel counts the time at the end of a tick, or when the process waits. */
    usleep(1000);
    if (!processes_read_schedule(getpid(), &schedule))
        return; /* this kernel does not count them */
    CHECK(schedule.ran_ns > 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0)
        _exit(0);
    siginfo_t info;
    REQUIRE(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
    CHECK(processes_read_schedule(child, &schedule) && schedule.ran_ns > 0);
    REQUIRE(waitpid(child, NULL, 0) == child);
    CHECK(!processes_read_schedule(child, &schedule));
}

/* Waits until the other end of the pipe is closed, then waits for all children, and exits. */
static void wait_for_end(const int *ends)
{
    char byte;
    close(ends[1]);
    ssize_t got = read(ends[0], &byte, 1);
    while (wait(NULL) > 0) {
    }
    _exit(got == 0 ? 0 : 1);
}

/* Starts five processes: two children, a child of the second child, and two children of that
 * grandchild. */
static void start_tree(const int *ends)
{
    if (fork() == 0)
        wait_for_end(ends);
    if (fork() == 0) {
        if (fork() == 0) {
            for (int i = 0; i < 2; i++) {
                if (fork() == 0)
                    wait_for_end(ends);
            }
            wait_for_end(ends);
        }
        wait_for_end(ends);
    }
}

/* Waits until the process has the expected number of descendants. Returns their number. */
static size_t settle(pid_t ancestor, struct processes *list, size_t expected)
{
    processes_descendants(ancestor, list);
    for (int tries = 0; tries < 1000 && list->count != expected; tries++) {
        usleep(1000);
        processes_descendants(ancestor, list);
    }
    return list->count;
}

TEST(processes_of_a_whole_tree_are_found)
{
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    start_tree(ends);
    struct processes list = {0}, walked = {0};
    REQUIRE(settle(getpid(), &list, 5) == 5);
    processes_descendants_by_walk(getpid(), &walked);
    REQUIRE(walked.count == 5);
    for (size_t i = 0; i < 5; i++) {
        bool found = false;
        for (size_t j = 0; j < 5; j++)
            found = found || list.pids[i] == walked.pids[j];
        CHECK(found);
        CHECK(processes_is_alive(list.pids[i]));
        struct process_memory memory;
        CHECK(processes_read_memory(list.pids[i], &memory));
    }
    processes_children(getpid(), &list);
    CHECK(list.count == 2);
    close(ends[1]);
    close(ends[0]);
    while (wait(NULL) > 0) {
    }
    processes_descendants(getpid(), &list);
    CHECK(list.count == 0);
    processes_free(&list);
    processes_free(&walked);
    CHECK(list.pids == NULL && list.capacity == 0);
}

/* The lists once had room for 1,024 processes, and further ones were left out without a word. */
TEST(processes_of_a_tree_of_any_size_are_found)
{
    enum { MANY = 2100 }; /* the list grows twice */
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    size_t started = 0;
    for (pid_t pid = 1; pid > 0 && started < MANY; started += pid > 0) {
        pid = fork();
        if (pid == 0)
            wait_for_end(ends);
    }
    struct processes list = {0};
    size_t found = settle(getpid(), &list, started);
    processes_descendants_by_walk(getpid(), &list);
    size_t walked = list.count;
    close(ends[1]);
    close(ends[0]);
    while (wait(NULL) > 0) {
    }
    processes_free(&list);
    if (started < MANY)
        SKIP("so many processes cannot be started here");
    CHECK(found == MANY && walked == MANY);
}

TEST(processes_that_have_ended_are_not_alive)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    siginfo_t info;
    REQUIRE(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
    struct process_memory memory;
    CHECK(!processes_is_alive(pid)); /* it is a zombie */
    CHECK(!processes_read_memory(pid, &memory));
    waitpid(pid, NULL, 0);
    CHECK(!processes_is_alive(pid));
}

/* In /proc/PID/stat, the name of a process stands in brackets before its state, and may contain
 * brackets itself. */
TEST(process_with_brackets_in_its_name_is_read)
{
    char before[16];
    prctl(PR_GET_NAME, before);
    prctl(PR_SET_NAME, ") Z 1 (x");
    CHECK(processes_is_alive(getpid()));
    prctl(PR_SET_NAME, before);
}

/* The launcher asks for the name of an orphan that has ended, before it reaps it. */
TEST(process_name_is_known_until_the_process_is_reaped)
{
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_NAME, "a (name) of 15b");
        _exit(0);
    }
    siginfo_t info;
    REQUIRE(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
    CHECK(strcmp(processes_read_name(child).data, "a (name) of 15b") == 0);
    waitpid(child, NULL, 0);
    CHECK(strcmp(processes_read_name(child).data, "") == 0);
}

TEST(processes_newest_changes_when_a_process_starts)
{
    pid_t before = processes_newest();
    CHECK(before > 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    CHECK(processes_newest() != before);
    waitpid(pid, NULL, 0);
}

TEST(file_fields_are_found_by_whole_names)
{
    uint64_t number = 0;
    CHECK(file_field("anon_thp 1\nanon 2\n", "anon ", &number) && number == 2);
    CHECK(file_field("a:\t 3 kB", "a:", &number) && number == 3);
    CHECK(!file_field("b anon 1\n", "anon ", &number));
    CHECK(!file_field("anon \n", "anon ", &number));
    CHECK(file_has_word("cpu memory\n", "memory"));
    CHECK(file_has_word("rw,memory", "memory"));
    CHECK(!file_has_word("memory_hugetlb memory2", "memory"));
    CHECK(!file_has_word("", "memory"));
}

TEST(file_lines_come_whole_whatever_their_length)
{
    struct fake fake = fake_make();
    static char text[20000];
    memset(text, 'a', sizeof text - 1);
    text[4] = '\n';
    text[9] = '\n';
    text[10] = '\n';
    text[15000] = '\n';
    fake_write(&fake, "lines", text);
    struct file_lines lines;
    REQUIRE(file_lines_open(&lines, fake.folder, "lines"));
    static const size_t lengths[] = {4, 4, 0, sizeof lines.buffer - 1, sizeof lines.buffer - 1};
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        char *line = file_lines_next(&lines);
        REQUIRE(line != NULL);
        CHECK(strlen(line) == lengths[i]);
    }
    CHECK(file_lines_next(&lines) == NULL);
    file_lines_close(&lines);
    fake_remove(&fake);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
