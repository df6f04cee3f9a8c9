/* perf_double.c - stands in for a processor's counters, so that their readers run on any machine.
 *
 *     perf_double [OPTION]… -- COMMAND [ARG]…
 *
 * The command and its children run under a seccomp filter. The filter passes every
 * perf_event_open(2) to this program, and every ioctl(2) and read(2) that may be meant for an
 * event. This program answers for all events that count, and lets the kernel answer for events that
 * sample. An event is a memfd whose name contains the event's number.
 *
 * A reader reads a group of events in pairs: once before the measured work and once after it.
 * Before a pair, the reader may ask for the group's number by an ioctl (PERF_EVENT_IOC_ID). The
 * ioctl begins a new pair, and pairs are counted from the ioctl on. The options are
 *
 *     NAME=NOTHING+EACH   In a pair of reads, event NAME counts EACH in the first pair after the
 *                         ioctl, NOTHING in the second to the ninth pair, and EACH again from the
 *                         tenth on. The probe measures an empty operation by one ioctl and nine
 *                         pairs, and so finds NOTHING. It calls the ioctl before each operation of
 *                         the program, and so finds EACH. An event that is not read in a group has
 *                         counted EACH.
 *     --missing=NAME      The event cannot be opened (ENOENT).
 *     --no-kernel         Events in the kernel may not be counted (EACCES).
 *     --running=PERCENT   An event that is not read in a group was on a counter for PERCENT of the
 *                         time, and has counted PERCENT of EACH. With 0 the event never ran.
 *     --lost=N            In every N-th pair of reads, the group had no counter for a part of the
 *                         time, and its events have counted only half as much.
 *     --fail=N            One read of every N-th pair fails: by turns the first and the second.
 *     --fail-alone=HOW    The read of an event that is not in a group fails: "error" is EIO,
 *                         "short" returns only 8 bytes.
 *
 * Exits with the command's exit code, with 77 if the kernel refuses the filter, and with 2 for a
 * wrong option.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EVENTS = 11, MOST = 65536, MEMBERS = 8, NOTHING_PAIRS = 9, REFUSED = 77, USAGE = 2 };

#define DTLB                                                                                       \
    (PERF_COUNT_HW_CACHE_DTLB | PERF_COUNT_HW_CACHE_OP_READ << 8 |                                 \
     PERF_COUNT_HW_CACHE_RESULT_MISS << 16)

static struct {
    const char *name;
    uint32_t type;
    uint64_t config;
    uint64_t nothing, each;
    bool missing;
} known[EVENTS] = {
    {.name = "task-clock", .type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_TASK_CLOCK},
    {.name = "context-switches",
     .type = PERF_TYPE_SOFTWARE,
     .config = PERF_COUNT_SW_CONTEXT_SWITCHES},
    {.name = "cpu-migrations", .type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_CPU_MIGRATIONS},
    {.name = "page-faults", .type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_PAGE_FAULTS},
    {.name = "cycles", .type = PERF_TYPE_HARDWARE, .config = PERF_COUNT_HW_CPU_CYCLES},
    {.name = "instructions", .type = PERF_TYPE_HARDWARE, .config = PERF_COUNT_HW_INSTRUCTIONS},
    {.name = "branches", .type = PERF_TYPE_HARDWARE, .config = PERF_COUNT_HW_BRANCH_INSTRUCTIONS},
    {.name = "branch-misses", .type = PERF_TYPE_HARDWARE, .config = PERF_COUNT_HW_BRANCH_MISSES},
    {.name = "cache-references",
     .type = PERF_TYPE_HARDWARE,
     .config = PERF_COUNT_HW_CACHE_REFERENCES},
    {.name = "cache-misses", .type = PERF_TYPE_HARDWARE, .config = PERF_COUNT_HW_CACHE_MISSES},
    {.name = "dTLB-load-misses", .type = PERF_TYPE_HW_CACHE, .config = DTLB},
};

static struct {
    bool no_kernel, alone_error, alone_short;
    uint64_t running_percent, lost, fail;
} told = {.running_percent = 100};

struct event {
    unsigned kind;
    unsigned leader;           /* number of its group's leader */
    bool grouped;              /* the event is read with PERF_FORMAT_GROUP */
    bool in_pair;              /* the second read of a pair is next */
    unsigned members[MEMBERS]; /* a leader's group, the leader included */
    unsigned count;
    uint64_t pairs, asked_pairs, enabled_ns, lost_ns;
    uint64_t value;
};

static struct event events[MOST];
static unsigned opened;
static int listener;

/* --- the command ------------------------------------------------------------------------------ */

static int install(void)
{
    const struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 9, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)PERF_EVENT_IOC_ID, 6, 5),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 24, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 24 + 8 * MEMBERS, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 7, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], (struct sock_filter *)code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                        &program);
}

static void pass(int socket, int fd)
{
    char byte = 0, space[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (sendmsg(socket, &message, 0) != 1)
        _exit(REFUSED);
}

static int passed(int socket)
{
    char byte, space[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    int fd = -1;
    if (recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message) != NULL)
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

/* --- memory and descriptors of the command ---------------------------------------------------- */

static bool move(pid_t thread, uint64_t address, void *bytes, size_t count, bool out)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", thread);
    int memory = open(path, out ? O_WRONLY | O_CLOEXEC : O_RDONLY | O_CLOEXEC);
    if (memory < 0)
        return false;
    ssize_t moved = out ? pwrite(memory, bytes, count, (off_t)address)
                        : pread(memory, bytes, count, (off_t)address);
    close(memory);
    return moved == (ssize_t)count;
}

/* Returns the number of the event that a descriptor of the command stands for, or -1. */
static int event_of(pid_t thread, uint64_t fd)
{
    char path[64], target[64] = "";
    unsigned number;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", thread, (int)fd);
    if (readlink(path, target, sizeof target - 1) < 0 ||
        sscanf(target, "/memfd:cairn-event-%u", &number) != 1 || number >= opened)
        return -1;
    return (int)number;
}

/* --- answers ---------------------------------------------------------------------------------- */

static const int kernel = 1; /* the result for calls that the kernel must answer */

static int add(const struct seccomp_notif *call, unsigned number)
{
    char name[32];
    snprintf(name, sizeof name, "cairn-event-%u", number);
    int memory = memfd_create(name, MFD_CLOEXEC);
    struct seccomp_notif_addfd give = {
        .id = call->id,
        .srcfd = (uint32_t)memory,
        .newfd_flags = (call->data.args[4] & PERF_FLAG_FD_CLOEXEC) != 0 ? O_CLOEXEC : 0,
    };
    int fd = memory < 0 ? -1 : ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &give);
    close(memory);
    return fd;
}

static int open_event(const struct seccomp_notif *call, int64_t *value)
{
    struct perf_event_attr attr = {0};
    unsigned kind = 0;
    if (!move((pid_t)call->pid, call->data.args[0], &attr, PERF_ATTR_SIZE_VER0, false))
        return EFAULT;
    while (kind < EVENTS && (known[kind].type != attr.type || known[kind].config != attr.config))
        kind++;
    if (attr.sample_period != 0 || kind == EVENTS)
        return -kernel;
    if (known[kind].missing || opened == MOST)
        return ENOENT;
    if (told.no_kernel && !attr.exclude_kernel)
        return EACCES;
    bool grouped = (attr.read_format & PERF_FORMAT_GROUP) != 0;
    struct event *event = &events[opened];
    *event = (struct event){.kind = kind, .leader = opened, .grouped = grouped};
    if ((int32_t)call->data.args[3] >= 0) {
        int leader = event_of((pid_t)call->pid, call->data.args[3]);
        if (leader < 0 || events[leader].count == MEMBERS)
            return EINVAL;
        event->leader = (unsigned)leader;
    }
    int fd = add(call, opened);
    if (fd < 0)
        return EMFILE;
    struct event *leader = &events[event->leader];
    leader->members[leader->count++] = opened++;
    *value = fd;
    return 0;
}

static int ask_number(const struct seccomp_notif *call)
{
    int number = event_of((pid_t)call->pid, call->data.args[0]);
    if (number < 0)
        return -kernel;
    uint64_t id = (uint64_t)number;
    events[number].in_pair = false;
    events[number].asked_pairs = 0;
    return move((pid_t)call->pid, call->data.args[2], &id, sizeof id, true) ? 0 : EFAULT;
}

static int read_alone(const struct event *event, uint64_t *words, size_t *count)
{
    const uint64_t enabled_ns = 1000000;
    if (told.alone_error)
        return EIO;
    words[0] = known[event->kind].each * told.running_percent / 100;
    words[1] = enabled_ns;
    words[2] = enabled_ns * told.running_percent / 100;
    *count = told.alone_short ? 1 : 3;
    return 0;
}

/* Adds what the events of a group count between the two reads of a pair. */
static void count_pair(struct event *leader)
{
    bool nothing = leader->asked_pairs > 1 && leader->asked_pairs <= NOTHING_PAIRS;
    bool lost = told.lost != 0 && leader->pairs % told.lost == 0;
    for (unsigned i = 0; i < leader->count; i++) {
        struct event *event = &events[leader->members[i]];
        uint64_t each = nothing ? known[event->kind].nothing : known[event->kind].each;
        event->value += lost ? each / 2 : each;
    }
    leader->lost_ns += lost ? 500 : 0;
}

static int read_group(struct event *leader, uint64_t *words, size_t *count)
{
    bool second = leader->in_pair;
    leader->enabled_ns += 1000;
    if (!second) {
        leader->pairs++;
        leader->asked_pairs++;
    } else {
        count_pair(leader);
    }
    bool fails = told.fail != 0 && leader->pairs % told.fail == 0 &&
                 (leader->pairs / told.fail % 2 != 0) == second;
    leader->in_pair = !second && !fails;
    if (fails)
        return EIO;
    words[0] = leader->count;
    words[1] = leader->enabled_ns;
    words[2] = leader->enabled_ns - leader->lost_ns;
    for (unsigned i = 0; i < leader->count; i++)
        words[3 + i] = events[leader->members[i]].value;
    *count = 3 + leader->count;
    return 0;
}

static int read_event(const struct seccomp_notif *call, int64_t *value)
{
    uint64_t words[3 + MEMBERS];
    size_t count = 0;
    int number = event_of((pid_t)call->pid, call->data.args[0]);
    if (number < 0)
        return -kernel;
    struct event *event = &events[number];
    int error =
        event->grouped ? read_group(event, words, &count) : read_alone(event, words, &count);
    size_t bytes = count * sizeof words[0];
    if (error != 0)
        return error;
    if (bytes > call->data.args[2])
        return ENOSPC;
    *value = (int64_t)bytes;
    return move((pid_t)call->pid, call->data.args[1], words, bytes, true) ? 0 : EFAULT;
}

/* Answers one call. Returns false if no process has the filter any more. */
static bool answer(void)
{
    struct seccomp_notif call = {0};
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0)
        return errno == EINTR || errno == ENOENT;
    struct seccomp_notif_resp response = {.id = call.id};
    int64_t value = 0;
    int error = call.data.nr == SYS_perf_event_open ? open_event(&call, &value)
                : call.data.nr == SYS_ioctl         ? ask_number(&call)
                                                    : read_event(&call, &value);
    if (error < 0) {
        response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    } else {
        response.error = -error;
        response.val = value;
    }
    (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
    return true;
}

/* --- options ---------------------------------------------------------------------------------- */

static unsigned kind_of(const char *name, size_t length)
{
    for (unsigned kind = 0; kind < EVENTS; kind++)
        if (strlen(known[kind].name) == length && strncmp(known[kind].name, name, length) == 0)
            return kind;
    fprintf(stderr, "perf_double: there is no event %.*s\n", (int)length, name);
    exit(USAGE);
}

static void option(const char *word)
{
    const char *is = strchr(word, '=');
    const char *rest = is != NULL ? is + 1 : "";
    char *plus;
    if (strncmp(word, "--missing=", 10) == 0) {
        known[kind_of(rest, strlen(rest))].missing = true;
    } else if (strcmp(word, "--no-kernel") == 0) {
        told.no_kernel = true;
    } else if (strncmp(word, "--running=", 10) == 0) {
        told.running_percent = strtoull(rest, NULL, 10);
    } else if (strncmp(word, "--lost=", 7) == 0) {
        told.lost = strtoull(rest, NULL, 10);
    } else if (strncmp(word, "--fail=", 7) == 0) {
        told.fail = strtoull(rest, NULL, 10);
    } else if (strcmp(word, "--fail-alone=error") == 0) {
        told.alone_error = true;
    } else if (strcmp(word, "--fail-alone=short") == 0) {
        told.alone_short = true;
    } else if (word[0] != '-' && is != NULL) {
        unsigned kind = kind_of(word, (size_t)(is - word));
        known[kind].nothing = strtoull(rest, &plus, 10);
        known[kind].each = *plus == '+' ? strtoull(plus + 1, NULL, 10) : 0;
    } else {
        fprintf(stderr, "perf_double: there is no option %s\n", word);
        exit(USAGE);
    }
}

int main(int argc, char **argv)
{
    int sockets[2], status, place = 1;
    for (; place < argc && strcmp(argv[place], "--") != 0; place++)
        option(argv[place]);
    if (place + 1 >= argc || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
        return USAGE;
    pid_t child = fork();
    if (child == 0) {
        int fd = install();
        if (fd < 0)
            _exit(REFUSED);
        pass(sockets[1], fd);
        close(fd);
        execvp(argv[place + 1], argv + place + 1);
        _exit(127);
    }
    close(sockets[1]);
    listener = passed(sockets[0]);
    signal(SIGINT, SIG_IGN); /* the command decides when to end */
    while (listener >= 0) {
        struct pollfd ready = {.fd = listener, .events = POLLIN};
        (void)poll(&ready, 1, -1);
        if ((ready.revents & POLLIN) != 0 ? !answer() : (ready.revents & (POLLHUP | POLLERR)) != 0)
            break;
    }
    if (waitpid(child, &status, 0) != child)
        return REFUSED;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
