#define _GNU_SOURCE 1

#include "launch/processes.h"

#include "base/text.h"
#include "launch/division.h"
#include "launch/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KIB UINT64_C(1024)

/* A path: "/proc/PID" followed by `rest`. */
struct proc_path {
    char data[64];
};

static struct proc_path proc_path(pid_t pid, const char *rest)
{
    struct proc_path path;
    struct text text = text_over(path.data, sizeof path.data);
    text_add(&text, "/proc/");
    text_add_unsigned(&text, (uint64_t)pid);
    text_add(&text, rest);
    return path;
}

/* Reads the state and the parent of a process from /proc/PID/stat. The name of the process, which
 * comes before them in parentheses, may itself contain blanks and parentheses. So the text is
 * parsed after its last parenthesis. */
static bool read_state(pid_t pid, char *state, pid_t *parent)
{
    char text[1024];
    if (!file_read_at(AT_FDCWD, proc_path(pid, "/stat").data, text, sizeof text))
        return false;
    const char *after_name = strrchr(text, ')');
    if (after_name == NULL || after_name[1] != ' ' || after_name[2] == '\0')
        return false;
    *state = after_name[2];
    *parent = (pid_t)strtol(after_name + 3, NULL, 10);
    return true;
}

/* The numbers of /proc/PID/stat by their position in proc(5). */
enum {
    STAT_PARENT = 4,
    STAT_FLAGS = 9,
    STAT_MINOR_FAULTS = 10,
    STAT_STARTED = 22,
    STAT_STACK = 28,
    STAT_NUMBERS
};

#define FORKED_WITHOUT_EXEC 0x40 /* PF_FORKNOEXEC of the kernel */

bool processes_parse_entry(const char *stat, const char *statm, struct division_process *entry)
{
    uint64_t numbers[STAT_NUMBERS] = {0};
    const char *at = strrchr(stat, ')');
    if (at == NULL || at[1] != ' ' || at[2] == '\0')
        return false;
    char *next = (char *)(uintptr_t)(at + 3);
    for (int i = STAT_PARENT; i < STAT_NUMBERS; i++) {
        if (*next != ' ')
            return false;
        numbers[i] = strtoull(next, &next, 10);
    }
    /* `statm` begins with three numbers: the pages of the process, its resident pages, and its
     * resident pages of files and shared memory. */
    strtoull(statm, &next, 10);
    uint64_t resident = strtoull(next, &next, 10), of_files = strtoull(next, &next, 10);
    if (resident <= of_files)
        return false;
    entry->parent = (pid_t)numbers[STAT_PARENT];
    entry->started = numbers[STAT_STARTED];
    entry->stack = numbers[STAT_STACK];
    entry->forked = (numbers[STAT_FLAGS] & FORKED_WITHOUT_EXEC) != 0;
    entry->faults = numbers[STAT_MINOR_FAULTS];
    entry->anon_bytes = (resident - of_files) * (uint64_t)sysconf(_SC_PAGESIZE);
    return true;
}

bool processes_read_entry(pid_t pid, struct division_process *entry)
{
    char stat[1024], statm[256];
    *entry = (struct division_process){.pid = pid};
    return file_read_at(AT_FDCWD, proc_path(pid, "/stat").data, stat, sizeof stat) &&
           file_read_at(AT_FDCWD, proc_path(pid, "/statm").data, statm, sizeof statm) &&
           processes_parse_entry(stat, statm, entry);
}

bool processes_is_alive(pid_t pid)
{
    char state;
    pid_t parent;
    return read_state(pid, &state, &parent) && state != 'Z' && state != 'X';
}

struct process_name processes_read_name(pid_t pid)
{
    struct process_name name;
    if (!file_read_at(AT_FDCWD, proc_path(pid, "/comm").data, name.data, sizeof name.data))
        name.data[0] = '\0';
    name.data[strcspn(name.data, "\n")] = '\0';
    return name;
}

/* /proc/PID/schedstat holds, for example, "89062 3997328 3": ran_ns, queued_ns, and how often the
 * thread ran. */
bool processes_read_schedule(pid_t pid, struct process_schedule *schedule)
{
    char text[128];
    *schedule = (struct process_schedule){0};
    if (!file_read_at(AT_FDCWD, proc_path(pid, "/schedstat").data, text, sizeof text))
        return false;
    char *rest;
    uint64_t ran_ns = strtoull(text, &rest, 10);
    if (rest == text || *rest != ' ')
        return false;
    schedule->ran_ns = ran_ns;
    schedule->queued_ns = strtoull(rest, NULL, 10);
    return true;
}

/* Reads the last number of /proc/loadavg, which is 2345 in "0.00 0.01 0.05 1/80 2345". */
pid_t processes_newest(void)
{
    char text[128];
    if (!file_read_at(AT_FDCWD, "/proc/loadavg", text, sizeof text))
        return 0;
    const char *last = strrchr(text, ' ');
    return last == NULL ? 0 : (pid_t)strtol(last, NULL, 10);
}

#define FIRST_LIST_BYTES 4096

static bool grow(struct processes *list)
{
    size_t bytes = list->capacity * sizeof list->pids[0];
    size_t wanted = bytes > 0 ? 2 * bytes : FIRST_LIST_BYTES;
    void *pids =
        bytes > 0 ? mremap(list->pids, bytes, wanted, MREMAP_MAYMOVE)
                  : mmap(NULL, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pids == MAP_FAILED)
        return false;
    list->pids = pids;
    list->capacity = wanted / sizeof list->pids[0];
    return true;
}

static void add(struct processes *list, pid_t pid)
{
    if (list->count < list->capacity || grow(list))
        list->pids[list->count++] = pid;
}

static bool has(const struct processes *list, pid_t pid)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->pids[i] == pid)
            return true;
    }
    return false;
}

void processes_free(struct processes *list)
{
    if (list->pids != NULL)
        munmap(list->pids, list->capacity * sizeof list->pids[0]);
    *list = (struct processes){0};
}

/* First way: read the lists of children. The kernel has a list for each thread. */

struct thread_visit {
    pid_t process;
    struct processes *list;
};

static void visit_thread(void *context, uint64_t thread)
{
    struct thread_visit *visit = context;
    char path[96];
    struct text text = text_over(path, sizeof path);
    text_add(&text, proc_path(visit->process, "/task/").data);
    text_add_unsigned(&text, thread);
    text_add(&text, "/children");

    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    char chunk[1024];
    uint64_t number = 0; /* may begin in one chunk and end in the next */
    ssize_t got;
    while ((got = read(fd, chunk, sizeof chunk)) > 0) {
        for (ssize_t i = 0; i < got; i++) {
            if (chunk[i] >= '0' && chunk[i] <= '9') {
                number = number * 10 + (uint64_t)(chunk[i] - '0');
            } else if (number != 0) {
                add(visit->list, (pid_t)number);
                number = 0;
            }
        }
    }
    close(fd);
}

static void add_children(pid_t parent, struct processes *list)
{
    int tasks = open(proc_path(parent, "/task").data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (tasks < 0)
        return;
    struct thread_visit visit = {.process = parent, .list = list};
    file_each_number(tasks, visit_thread, &visit);
    close(tasks);
}

static bool kernel_lists_children(void)
{
    static int known; /* 0: not checked yet, 1: yes, -1: no */
    if (known == 0)
        known = access("/proc/thread-self/children", F_OK) == 0 ? 1 : -1;
    return known == 1;
}

/* Second way: read all of /proc and the parent of each process. */

struct process_visit {
    pid_t ancestor;
    bool deep;      /* finds all descendants, not only children */
    bool backwards; /* a child was found whose number is below its parent's */
    struct processes *list;
};

static void visit_process(void *context, uint64_t number)
{
    struct process_visit *visit = context;
    pid_t pid = (pid_t)number;
    char state;
    pid_t parent;
    if (pid == visit->ancestor || !read_state(pid, &state, &parent))
        return;
    if (pid < parent)
        visit->backwards = true;
    bool wanted = parent == visit->ancestor || (visit->deep && has(visit->list, parent));
    if (wanted && !has(visit->list, pid))
        add(visit->list, pid);
}

static void walk(pid_t ancestor, bool deep, struct processes *list)
{
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return;
    struct process_visit visit = {.ancestor = ancestor, .deep = deep, .list = list};
    size_t before;
    do {
        /* /proc is sorted by number. Process numbers wrap around, so a child may come before its
         * parent. The walk is then repeated until it finds nothing new. */
        before = list->count;
        file_each_number(proc, visit_process, &visit);
    } while (deep && visit.backwards && list->count > before);
    close(proc);
}

void processes_children(pid_t parent, struct processes *list)
{
    list->count = 0;
    if (kernel_lists_children())
        add_children(parent, list);
    else
        walk(parent, false, list);
}

void processes_descendants_by_walk(pid_t ancestor, struct processes *list)
{
    list->count = 0;
    walk(ancestor, true, list);
}

void processes_descendants(pid_t ancestor, struct processes *list)
{
    if (!kernel_lists_children()) {
        processes_descendants_by_walk(ancestor, list);
        return;
    }
    list->count = 0;
    add_children(ancestor, list);
    /* Breadth first: `count` grows during the loop. */
    for (size_t i = 0; i < list->count; i++)
        add_children(list->pids[i], list);
}

bool processes_parse_memory(const char *text, struct process_memory *memory)
{
    uint64_t anon, shmem, file, highest;
    if (!file_field(text, "RssAnon:", &anon) || !file_field(text, "RssShmem:", &shmem) ||
        !file_field(text, "RssFile:", &file) || !file_field(text, "VmHWM:", &highest))
        return false;
    *memory = (struct process_memory){anon * KIB, shmem * KIB, file * KIB, highest * KIB};
    return true;
}

bool processes_read_memory(pid_t pid, struct process_memory *memory)
{
    /* In this file the supplementary groups come before the memory, and there may be hundreds of
     * groups. */
    char text[16384];
    return file_read_at(AT_FDCWD, proc_path(pid, "/status").data, text, sizeof text) &&
           processes_parse_memory(text, memory);
}

bool processes_parse_share(const char *text, struct process_share *share)
{
    uint64_t anon, shmem, lazy;
    if (!file_field(text, "Pss_Anon:", &anon) || !file_field(text, "Pss_Shmem:", &shmem) ||
        !file_field(text, "LazyFree:", &lazy))
        return false;
    *share = (struct process_share){anon * KIB, shmem * KIB, lazy * KIB};
    return true;
}

bool processes_read_share(pid_t pid, struct process_share *share)
{
    char text[2048];
    return file_read_at(AT_FDCWD, proc_path(pid, "/smaps_rollup").data, text, sizeof text) &&
           processes_parse_share(text, share);
}
