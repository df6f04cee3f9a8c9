#define _GNU_SOURCE 1

#include "launch/division.h"

#include "launch/processes.h"

#include "test.h"

#include <unistd.h>

#define PAGE UINT64_C(4096)

static struct division_process process(pid_t pid, pid_t parent, uint64_t pages, uint64_t faults)
{
    return (struct division_process){
        .pid = pid,
        .parent = parent,
        .started = (uint64_t)pid,
        .stack = 7,
        .forked = parent != 1,
        .anon_bytes = pages * PAGE,
        .faults = faults,
    };
}

/* Adds a reading in which the tree of processes has `pages` pages in total. */
static struct division_result add(struct division *division, struct division_process *processes,
                                  size_t count, uint64_t pages)
{
    division_add(division, processes, count, pages * PAGE, 0, true);
    division_check(division);
    return division->result;
}

TEST(division_of_one_process_has_no_copies)
{
    struct division division = division_begin(PAGE);
    struct division_process one[] = {process(10, 1, 100, 130)};
    struct division_result result = add(&division, one, 1, 105);
    CHECK(result.processes == 1 && result.has_copied);
    CHECK(result.largest_bytes == 100 * PAGE && result.total_bytes == 105 * PAGE);
    CHECK(result.copied_bytes == 0 && result.child_pages == 0 && result.parent_pages == 0);
}

/* The kernel counts the tree's memory a little later than that of each process. */
TEST(division_has_no_process_that_is_larger_than_the_tree)
{
    struct division division = division_begin(PAGE);
    struct division_process one[] = {process(10, 1, 100, 130)};
    struct division_result result = add(&division, one, 1, 90);
    CHECK(result.largest_bytes == 90 * PAGE && result.total_bytes == 90 * PAGE);
    CHECK(result.copied_bytes == 0);
}

/* The parent has 1,000 pages when it forks. Then the child writes to 30 of them and the parent to
 * 50, of which 10 are the same. The child also takes 7 new pages and the parent 5. */
TEST(division_finds_the_pages_that_were_copied_after_a_fork)
{
    struct division division = division_begin(PAGE);
    struct division_process before[] = {process(10, 1, 1000, 1020)};
    add(&division, before, 1, 1000);
    struct division_process forked[] = {process(11, 10, 1000, 2), process(10, 1, 1000, 1021)};
    add(&division, forked, 2, 1003);
    struct division_process after[] = {process(10, 1, 1005, 1020 + 50 + 5),
                                       process(11, 10, 1007, 30 + 7)};
    struct division_result result = add(&division, after, 2, 1000 + 5 + 7 + 70);
    CHECK(result.processes == 2);
    CHECK(result.copied_bytes == 70 * PAGE);
    CHECK(result.largest_bytes == 1007 * PAGE);
    CHECK(result.child_pages == 30 && result.parent_pages == 50);
}

/* A process that called exec shares nothing with its parent. */
TEST(division_counts_other_programs_with_all_their_memory)
{
    struct division division = division_begin(PAGE);
    struct division_process tree[] = {process(10, 1, 400, 400), process(11, 10, 300, 300),
                                      process(12, 10, 200, 200)};
    tree[1].forked = tree[2].forked = false;
    tree[1].stack = 8;
    tree[2].stack = 9;
    struct division_result result = add(&division, tree, 3, 900);
    CHECK(result.copied_bytes == 0 && result.child_pages == 0 && result.parent_pages == 0);
    CHECK(result.largest_bytes == 400 * PAGE);
}

/* A shell starts a child in the background and becomes another program. */
TEST(division_of_a_parent_that_calls_exec_has_no_copies)
{
    struct division division = division_begin(PAGE);
    struct division_process before[] = {process(10, 1, 90, 90), process(11, 10, 90, 3)};
    add(&division, before, 2, 95);
    struct division_process after[] = {process(10, 1, 60, 160), process(11, 10, 90, 3)};
    after[0].stack = 8;
    struct division_result result = add(&division, after, 2, 150);
    CHECK(result.copied_bytes == 0);
    CHECK(result.parent_pages == 0);
}

/* The parent has ended, so the orphan alone has all pages that it shared with the parent. */
TEST(division_of_an_orphan_counts_its_pages)
{
    struct division division = division_begin(PAGE);
    struct division_process both[] = {process(10, 1, 100, 100), process(11, 10, 100, 0)};
    add(&division, both, 2, 100);
    struct division_process orphan[] = {process(11, 1, 120, 20)};
    orphan[0].forked = true;
    struct division_result result = add(&division, orphan, 1, 121);
    CHECK(result.copied_bytes == 0 && result.largest_bytes == 120 * PAGE);
}

/* Three workers of one server each write to 20 pages of their own choice. */
TEST(division_of_a_server_with_workers)
{
    struct division division = division_begin(PAGE);
    struct division_process tree[4] = {process(10, 1, 500, 510)};
    add(&division, tree, 1, 500);
    for (pid_t pid = 11; pid < 14; pid++)
        tree[pid - 10] = process(pid, 10, 500, 0);
    add(&division, tree, 4, 501);
    for (size_t i = 0; i < 4; i++)
        tree[i].faults = tree[i].pid == 10 ? 510 : 20;
    struct division_result result = add(&division, tree, 4, 560);
    CHECK(result.copied_bytes == 60 * PAGE && result.child_pages == 60);
    CHECK(result.parent_pages == 0);
}

TEST(division_keeps_the_reading_with_the_most_memory)
{
    struct division division = division_begin(PAGE);
    struct division_process one[] = {process(10, 1, 100, 100)};
    add(&division, one, 1, 100);
    struct division_process less[] = {process(10, 1, 40, 100)};
    CHECK(add(&division, less, 1, 40).total_bytes == 100 * PAGE);
    division_add(&division, NULL, 0, 900 * PAGE, 0, true);
    CHECK(division.result.total_bytes == 100 * PAGE);
}

/* Without a cgroup, a shared page counts once for each process. So the launcher cannot tell copies
 * from shared pages. */
TEST(division_without_a_cgroup_knows_no_copies)
{
    struct division division = division_begin(PAGE);
    struct division_process both[] = {process(10, 1, 100, 100), process(11, 10, 100, 60)};
    division_add(&division, both, 2, 200 * PAGE, 0, false);
    division_check(&division);
    CHECK(!division.result.has_copied && division.result.copied_bytes == 0);
}

/* Adds readings of random trees of processes. division_check(), which add() calls, must hold for
 * any reading, even for one that cannot happen. */
TEST(division_holds_for_any_reading)
{
    struct division division = division_begin(PAGE);
    uint64_t seed = 1;
    for (int round = 0; round < 3000; round++) {
        struct division_process tree[DIVISION_PROCESSES_MAX + 1];
        seed = seed * 6364136223846793005 + 1442695040888963407;
        size_t count = (seed >> 33) % (COUNT_OF(tree) + 1);
        for (size_t i = 0; i < count; i++) {
            seed = seed * 6364136223846793005 + 1442695040888963407;
            tree[i] = process((pid_t)(1 + (seed >> 40) % 400), (pid_t)(1 + (seed >> 50) % 400),
                              (seed >> 33) % 5000, (seed >> 20) % 9000);
            tree[i].stack = (seed >> 60) % 2;
            for (size_t j = 0; j < i; j++) /* a reading contains each process once */
                if (tree[j].pid == tree[i].pid)
                    tree[i].pid = (pid_t)(1000 + i);
        }
        division.result.total_bytes /= 2;
        division.result.largest_bytes /= 4;
        division.result.copied_bytes /= 4;
        add(&division, tree, count, (seed >> 35) % 100000);
    }
    CHECK(division.families > 0);
}

TEST(division_entries_are_parsed_from_the_kernels_files)
{
    static const char stat[] =
        "4211 (a (b) c) S 4200 1 1 0 -1 4194368 5120 0 1 0 3 4 0 0 20 0 1 0 987654 104857600 "
        "3000 18446744073709551615 1 1 140721 0 0";
    struct division_process entry = {.pid = 4211};
    REQUIRE(processes_parse_entry(stat, "25600 3000 400 1 0 2000 0\n", &entry));
    CHECK(entry.parent == 4200 && entry.started == 987654 && entry.stack == 140721);
    CHECK(entry.forked && entry.faults == 5120);
    CHECK(entry.anon_bytes == 2600 * (uint64_t)sysconf(_SC_PAGESIZE));
    CHECK(!processes_parse_entry(stat, "0 0 0 0 0 0 0\n", &entry)); /* a zombie */
    CHECK(!processes_parse_entry("4211 (a) S 4200 1", "25600 3000 400", &entry));
    CHECK(!processes_parse_entry("", "", &entry));
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
