#define _GNU_SOURCE 1

#include "launch/memory.h"

#include "base/clock.h"
#include "launch/file.h"
#include "launch/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define BATCH_PAGES UINT64_C(64) /* MEMCG_CHARGE_BATCH of the kernel */

/* In a cgroup, page tables are read only if the tree has at most EXACT_PROCESSES_MAX processes, and
 * its memory is at most EXACT_SLACKS times the slack (see memory.h). With more memory, the
 * statistics are exact enough: their error is half the slack, which is less than 4 % of the memory
 * of the tree. */
#define EXACT_PROCESSES_MAX 4
#define EXACT_SLACKS        16

uint64_t memory_slack_bytes(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    long page_bytes = sysconf(_SC_PAGESIZE);
    return 2 * BATCH_PAGES * (uint64_t)(cpus > 0 ? cpus : 1) *
           (uint64_t)(page_bytes > 0 ? page_bytes : 4096);
}

const char *memory_method_name(enum memory_method method)
{
    switch (method) {
    case MEMORY_CGROUP_V2:
        return "cgroup v2";
    case MEMORY_CGROUP_V1:
        return "cgroup v1";
    case MEMORY_SAMPLED:
        return "sampled";
    case MEMORY_NOT_MEASURED:
        break;
    }
    return "not measured";
}

/* Reading page tables has a budget of CPU time that is separate from that of other readings. There
 * is no upper limit for the time between two readings of page tables. */
static const struct pace look_pace = {
    .min_ns = NS_PER_MS, .max_ns = UINT64_MAX / 2, .divisor = 500};

static bool look_is_due(const struct memory *memory)
{
    return clock_now_ns() >= memory->look.due_ns;
}

void memory_begin(struct memory *memory, uint64_t now_ns)
{
    memory->look = look_pace;
    pace_begin(&memory->look, now_ns);
}

/* Readings from a cgroup. */

/* The names of the statistics, which differ between cgroup v1 and v2. The "total_" numbers of v1
 * include the cgroups below this one, as all numbers of v2 do. */
struct stat_names {
    const char *anon;
    const char *shmem;
    const char *file; /* page cache, which includes shmem */
    const char *active_file;
    const char *inactive_file;
};

static const struct stat_names names_v2 = {"anon ", "shmem ", "file ", "active_file ",
                                           "inactive_file "};
static const struct stat_names names_v1 = {"total_rss ", "total_shmem ", "total_cache ",
                                           "total_active_file ", "total_inactive_file "};

/* Returns the number named `name` in the statistics. Returns 0 if the statistics do not have this
 * number. */
static uint64_t stat_or_zero(const char *text, const char *name)
{
    uint64_t bytes;
    return file_field(text, name, &bytes) ? bytes : 0;
}

/* Returns the kernel memory of the cgroup. v2 reports this memory in the statistics, since Linux
 * 5.18 as one sum. v1 reports it in a separate file. */
static uint64_t kernel_bytes(const struct memory *memory, const char *stat)
{
    uint64_t bytes;
    if (memory->method == MEMORY_CGROUP_V1)
        return memory->kernel >= 0 && file_read_number(memory->kernel, &bytes) ? bytes : 0;
    if (!file_field(stat, "kernel ", &bytes))
        bytes = stat_or_zero(stat, "kernel_stack ") + stat_or_zero(stat, "slab ");
    return bytes + stat_or_zero(stat, "sock ");
}

static bool read_stat(const struct memory *memory, struct peak_reading *reading)
{
    const struct stat_names *names = memory->method == MEMORY_CGROUP_V2 ? &names_v2 : &names_v1;
    char text[8192];
    uint64_t file, active, inactive;
    if (!file_read(memory->stat, text, sizeof text) ||
        !file_field(text, names->anon, &reading->anon_bytes) ||
        !file_field(text, names->shmem, &reading->shmem_bytes) ||
        !file_field(text, names->file, &file) || !file_field(text, names->active_file, &active) ||
        !file_field(text, names->inactive_file, &inactive))
        return false;
    uint64_t cache = file > reading->shmem_bytes ? file - reading->shmem_bytes : 0;
    reading->other_bytes = cache + kernel_bytes(memory, text);
    /* MADV_FREE moves anonymous pages to the file lists. If more bytes are on the file lists than
     * in the page cache, the difference is lazily freed memory. */
    uint64_t listed = active + inactive;
    reading->lazy_bytes = listed > cache ? listed - cache : 0;
    return true;
}

/* Writes the numbers of the cgroup's members to `pids`, at most `capacity`. Returns `capacity` + 1
 * if there are more. The file is opened each time: cgroup v1 returns an old list for up to a second
 * if the file stays open. */
static size_t read_members(const struct memory *memory, pid_t *pids, size_t capacity)
{
    char text[16 * DIVISION_PROCESSES_MAX];
    if (!file_read_at(memory->folder, "cgroup.procs", text, sizeof text))
        return 0;
    size_t count = 0;
    uint64_t pid;
    const char *line = text;
    for (; line != NULL && file_field(line, "", &pid); line = file_next_line(line)) {
        if (count == capacity)
            return capacity + 1;
        pids[count++] = (pid_t)pid;
    }
    return count;
}

/* Adds up the memory in the page tables of all members of the cgroup. Returns false if there are
 * more than EXACT_PROCESSES_MAX members, or none. A member that ends meanwhile counts as 0. */
static bool look_at_members(const struct memory *memory, struct process_share *sum)
{
    pid_t members[EXACT_PROCESSES_MAX];
    size_t count = read_members(memory, members, COUNT_OF(members));
    *sum = (struct process_share){0};
    if (count > COUNT_OF(members))
        return false;
    for (size_t i = 0; i < count; i++) {
        struct process_share share;
        if (processes_read_share(members[i], &share)) {
            sum->anon_bytes += share.anon_bytes;
            sum->shmem_bytes += share.shmem_bytes;
            sum->lazy_bytes += share.lazy_bytes;
        }
    }
    return count > 0;
}

/* Corrects the reading of a small tree by its page tables, if it is time to read them. */
static void correct_small(struct memory *memory, struct peak_reading *reading)
{
    bool small = reading->anon_bytes + reading->shmem_bytes <= EXACT_SLACKS * memory->slack_bytes;
    if (!small || !look_is_due(memory))
        return;
    uint64_t begin_ns = clock_thread_cpu_ns();
    struct process_share exact;
    if (look_at_members(memory, &exact)) {
        /* The larger of the two numbers is kept: the page tables are newer, but only the statistics
         * include shared memory that no process maps. */
        if (exact.anon_bytes > reading->anon_bytes)
            reading->anon_bytes = exact.anon_bytes;
        if (exact.shmem_bytes > reading->shmem_bytes)
            reading->shmem_bytes = exact.shmem_bytes;
        reading->lazy_bytes = exact.lazy_bytes;
    }
    pace_spend(&memory->look, clock_now_ns(), clock_thread_cpu_ns() - begin_ns);
}

/* Updates `cache_taken`: the number of file pages that the kernel has reclaimed plus the number of
 * times that the whole page cache was dropped. `other_bytes` is the page cache and kernel memory of
 * the cgroup. If it was within the slack at this reading and at the last one, the update is
 * skipped, because the kernel could not have reclaimed more than the slack. */
static void read_cache_taken(struct memory *memory, uint64_t other_bytes)
{
    uint64_t most = other_bytes > memory->other_bytes ? other_bytes : memory->other_bytes;
    memory->other_bytes = other_bytes;
    char text[16384];
    if (most <= memory->slack_bytes || memory->vmstat < 0 ||
        !file_read(memory->vmstat, text, sizeof text))
        return;
    memory->cache_taken =
        stat_or_zero(text, "pgsteal_file ") + stat_or_zero(text, "drop_pagecache ");
}

static void begin_interval(const struct memory *memory)
{
    if (memory->resettable)
        file_write(memory->charged_max, "0");
}

static bool read_cgroup(struct memory *memory, struct peak_reading *reading)
{
    *reading = (struct peak_reading){.charged = PEAK_CHARGED_UNKNOWN};
    /* The highest charge is read first. Memory that is charged afterwards counts again in the next
     * interval. */
    bool has_max = memory->charged_max >= 0 &&
                   file_read_number(memory->charged_max, &reading->charged_max_bytes);
    if (has_max)
        begin_interval(memory);
    if (!read_stat(memory, reading))
        return false;
    if (has_max)
        reading->charged = memory->resettable ? PEAK_CHARGED_INTERVAL : PEAK_CHARGED_LIFETIME;
    read_cache_taken(memory, reading->other_bytes);
    reading->cache_taken = memory->cache_taken;
    correct_small(memory, reading);
    return true;
}

static bool open_cgroup(struct memory *memory, int folder, enum memory_method method,
                        const char *charged_max)
{
    *memory = (struct memory){
        .method = method,
        .look = {.due_ns = UINT64_MAX}, /* set by memory_begin() */
        .stat = openat(folder, "memory.stat", O_RDONLY | O_CLOEXEC),
        .kernel = openat(folder, "memory.kmem.usage_in_bytes", O_RDONLY | O_CLOEXEC),
        .charged_max = openat(folder, charged_max, O_RDWR | O_CLOEXEC),
        .folder = folder,
        .vmstat = open("/proc/vmstat", O_RDONLY | O_CLOEXEC),
        .other_bytes = UINT64_MAX, /* makes the first reading read /proc/vmstat */
        .slack_bytes = memory_slack_bytes(),
    };
    memory->resettable = memory->charged_max >= 0 && file_write(memory->charged_max, "0");
    /* Before Linux 6.12, memory.peak of v2 is read-only and cannot be reset. */
    if (memory->charged_max < 0)
        memory->charged_max = openat(folder, charged_max, O_RDONLY | O_CLOEXEC);
    struct peak_reading reading;
    if (memory->stat >= 0 && read_cgroup(memory, &reading))
        return true;
    int error = errno;
    memory_close(memory);
    errno = error;
    return false;
}

bool memory_open_v2(struct memory *memory, int folder)
{
    /* Writing to memory.peak resets the maximum for this descriptor alone, so the same descriptor
     * must be used for reading it. */
    return open_cgroup(memory, folder, MEMORY_CGROUP_V2, "memory.peak");
}

bool memory_open_v1(struct memory *memory, int folder)
{
    return open_cgroup(memory, folder, MEMORY_CGROUP_V1, "memory.max_usage_in_bytes");
}

/* Readings process by process. */

/* Returns a lower bound for the memory that a process held at some moment since the last reading.
 * Returns 0 if the highest size of the process (VmHWM) did not grow since that reading, or if no
 * entry is free for the process. */
static uint64_t follow(struct memory *memory, pid_t pid, const struct process_memory *now)
{
    struct memory_followed *place = NULL;
    for (size_t i = 0; i < MEMORY_FOLLOWED_MAX; i++) {
        if (memory->followed[i].pid == pid) {
            place = &memory->followed[i];
            break;
        }
        if (place == NULL && memory->followed[i].pid == 0)
            place = &memory->followed[i];
    }
    if (place == NULL)
        return 0;
    struct memory_followed before = place->pid == pid ? *place : (struct memory_followed){0};
    /* The process called exec, or its number belongs to a new process. */
    if (now->highest_bytes < before.highest_bytes)
        before = (struct memory_followed){0};
    *place = (struct memory_followed){pid, true, now->file_bytes, now->highest_bytes};
    uint64_t file = now->file_bytes > before.file_bytes ? now->file_bytes : before.file_bytes;
    return now->highest_bytes > before.highest_bytes && now->highest_bytes > file
               ? now->highest_bytes - file
               : 0;
}

static void forget_unseen(struct memory *memory)
{
    for (size_t i = 0; i < MEMORY_FOLLOWED_MAX; i++) {
        if (!memory->followed[i].seen)
            memory->followed[i].pid = 0;
        memory->followed[i].seen = false;
    }
}

/* Updates the list of processes. If no process was started on this machine since the last update,
 * the old list still includes the whole tree. Processes of the list that have ended cannot be read,
 * and count as 0. */
static void find_processes(struct memory *memory)
{
    pid_t newest = processes_newest();
    if (newest != 0 && newest == memory->newest)
        return;
    memory->newest = newest;
    processes_descendants(memory->ancestor, &memory->tree);
}

/* Reads the number of pages that all processes of the machine have ever freed lazily. If the number
 * did not change, no process of the tree freed pages lazily. */
static bool read_freed_lazily(uint64_t *pages)
{
    char text[16384];
    return file_read_at(AT_FDCWD, "/proc/vmstat", text, sizeof text) &&
           file_field(text, "pglazyfree ", pages);
}

/* Updates `lazy_bytes` from the page tables, if it is time to read them. The page tables are not
 * read if `lazy_bytes` is 0 and no process of the machine has freed pages lazily since page tables
 * were last read. */
static void look_at_lazy(struct memory *memory)
{
    if (!look_is_due(memory))
        return;
    uint64_t begin_ns = clock_thread_cpu_ns();
    uint64_t freed_lazily = 0;
    bool unchanged = read_freed_lazily(&freed_lazily) && freed_lazily == memory->freed_lazily;
    if (!unchanged || memory->lazy_bytes > 0) {
        memory->freed_lazily = freed_lazily;
        memory->lazy_bytes = 0;
        for (size_t i = 0; i < memory->tree.count; i++) {
            struct process_share share;
            if (processes_read_share(memory->tree.pids[i], &share))
                memory->lazy_bytes += share.lazy_bytes;
        }
    }
    pace_spend(&memory->look, clock_now_ns(), clock_thread_cpu_ns() - begin_ns);
}

static bool read_sampled(struct memory *memory, struct peak_reading *reading)
{
    find_processes(memory);
    *reading = (struct peak_reading){.charged = PEAK_CHARGED_UNKNOWN};
    for (size_t i = 0; i < memory->tree.count; i++) {
        struct process_memory process;
        if (!processes_read_memory(memory->tree.pids[i], &process))
            continue;
        reading->anon_bytes += process.anon_bytes;
        reading->shmem_bytes += process.shmem_bytes;
        uint64_t at_least = follow(memory, memory->tree.pids[i], &process);
        if (at_least > reading->at_least_bytes)
            reading->at_least_bytes = at_least;
    }
    forget_unseen(memory);
    look_at_lazy(memory);
    reading->lazy_bytes = memory->lazy_bytes;
    return true;
}

bool memory_open_sampled(struct memory *memory, pid_t ancestor)
{
    *memory = (struct memory){
        .method = MEMORY_SAMPLED,
        .look = {.due_ns = UINT64_MAX}, /* set by memory_begin() */
        .stat = -1,
        .kernel = -1,
        .charged_max = -1,
        .folder = -1,
        .vmstat = -1,
        .ancestor = ancestor,
    };
    read_freed_lazily(&memory->freed_lazily);
    struct peak_reading reading;
    return read_sampled(memory, &reading);
}

bool memory_read(struct memory *memory, struct peak_reading *reading)
{
    switch (memory->method) {
    case MEMORY_CGROUP_V2:
    case MEMORY_CGROUP_V1:
        return read_cgroup(memory, reading);
    case MEMORY_SAMPLED:
        return read_sampled(memory, reading);
    case MEMORY_NOT_MEASURED:
        break;
    }
    return false;
}

void memory_divide(const struct memory *memory, const struct peak_reading *reading,
                   struct division *division)
{
    pid_t members[DIVISION_PROCESSES_MAX];
    bool sampled = memory->method == MEMORY_SAMPLED;
    const pid_t *pids = sampled ? memory->tree.pids : members;
    size_t count = sampled ? memory->tree.count : read_members(memory, members, COUNT_OF(members));
    if (count > DIVISION_PROCESSES_MAX)
        return;
    struct division_process processes[DIVISION_PROCESSES_MAX];
    size_t alive = 0;
    for (size_t i = 0; i < count; i++)
        alive += processes_read_entry(pids[i], &processes[alive]);
    division_add(division, processes, alive, reading->anon_bytes, reading->shmem_bytes, !sampled);
}

void memory_close(struct memory *memory)
{
    int fds[] = {memory->stat, memory->kernel, memory->charged_max, memory->vmstat};
    for (size_t i = 0; memory->method != MEMORY_NOT_MEASURED && i < COUNT_OF(fds); i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    processes_free(&memory->tree);
    *memory = (struct memory){.method = MEMORY_NOT_MEASURED};
}
