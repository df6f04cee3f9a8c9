#define _GNU_SOURCE 1

#include "launch/cpu_samples.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Bytes of the stack in each sample. When an allocator has called a function of libc, the bytes
 * must include the return address into the allocator. 256 bytes are enough even for the libc
 * functions that sleep, which have the largest stack frames. */
#define STACK_BYTES 256

/* Sizes of a ring: the first size for a steady clock, the first size for an adaptive clock, and the
 * smallest size. map_ring() halves the size until the kernel permits it. RING_BYTES_MOST has room
 * for half a second of samples, or for the records of the libraries that a thousand processes load.
 * An adaptive clock would at first fill a ring of this size within 40 ms, so RING_BYTES_FAST is
 * four times as large. Without privileges the kernel permits 512 KiB per processor. */
#define RING_BYTES_MOST  ((size_t)256 << 10)
#define RING_BYTES_FAST  ((size_t)1 << 20)
#define RING_BYTES_LEAST ((size_t)16 << 10)

#if defined(__x86_64__)
#include <asm/perf_regs.h>
#define REGISTERS                                                                                  \
    (UINT64_C(1) << PERF_REG_X86_BP | UINT64_C(1) << PERF_REG_X86_SP |                             \
     UINT64_C(1) << PERF_REG_X86_IP)
#else
#define REGISTERS UINT64_C(0) /* cpu_samples.py does not know other registers */
#endif

/* Limit for the size of the file. A larger file could take disk space that the program needs. A
 * steady clock of two processors reaches this size after half an hour. */
#define FILE_BYTES_MOST (UINT64_C(1) << 30)

/* The file gets the first THINNING_BYTES of the samples of an adaptive clock, then half of the next
 * samples until they take as many bytes, then a quarter, and so on. So the samples of 64 busy
 * processors fill half of FILE_BYTES_MOST only after 26 hours. From then on, they are as exact as
 * 240,000 samples of equal weight. These are samples of all processes that the clock sees. */
#define THINNING_BYTES (UINT64_C(32) << 20)

/* drain_ring() writes this many bytes at once. It is more than the largest record. */
#define BUFFER_BYTES ((size_t)128 << 10)
static_assert(BUFFER_BYTES > UINT16_MAX, "the size of a record is a uint16_t");

/* The period of an adaptive clock is the CPU time of the tree divided by this number. So a second
 * of CPU time has about four thousand samples, and a tenth of a second has 1,700. */
#define SAMPLES_AIM 1000

/* A tree that uses no CPU time must not keep the short period for long, because each sample wakes
 * the processor. So the period grows with the wall time, too, but this many times as slowly. */
#define IDLE_FACTOR 20

/* See adapt(). */
#define CHANGE_PERIODS 200

/* The drains of an adaptive clock come this many times as often until its period is steady. */
#define FAST_DRAINS 5

/* Returns a period around `period_ns`: a random one from 0.9 to 1.1 times as long. */
static uint64_t varied(struct cpu_samples *samples, uint64_t period_ns)
{
    return period_ns * (900 + random_below(&samples->random, 201)) / 1000;
}

/* Returns a random period for the threads that start from now on, from 0.5 to 1.5 times the mean.
 * With one period for all threads, each of them would be sampled at the same moments of its
 * life. */
static uint64_t period_of_threads(struct cpu_samples *samples)
{
    return CPU_SAMPLES_THREADS_NS * (500 + random_below(&samples->random, 1001)) / 1000;
}

/* Opens the clock of a processor, or the clocks that all threads of the tree have on this
 * processor, as head.scope says. Returns -1 with errno set if the kernel refuses. */
static int open_event(struct cpu_samples *samples, int cpu)
{
    bool of_threads = samples->head.scope != CPU_SAMPLES_PROCESSORS;
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof attr,
        .config = PERF_COUNT_SW_CPU_CLOCK,
        .sample_period = of_threads ? period_of_threads(samples) : samples->period_ns,
        .sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_PERIOD |
                       PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER,
        .sample_regs_user = REGISTERS,
        .sample_stack_user = STACK_BYTES,
        .exclude_idle = 1,
        .exclude_kernel = samples->head.scope == CPU_SAMPLES_THREADS_IN_USER_MODE,
        .exclude_hv = samples->head.scope == CPU_SAMPLES_THREADS_IN_USER_MODE,
        .exclude_callchain_user = 1,
        .exclude_callchain_kernel = samples->head.scope == CPU_SAMPLES_THREADS_IN_USER_MODE,
        .disabled = of_threads,
        .inherit = of_threads,
        .enable_on_exec = of_threads,
        .mmap = 1,
        .mmap2 = 1,
        .comm = 1,
        .comm_exec = 1,
        .task = 1,
        .sample_id_all = 1,
        .use_clockid = 1,
        .clockid = CLOCK_MONOTONIC,
    };
    pid_t pid = of_threads ? (pid_t)samples->head.pid : samples->cgroup;
    unsigned long flags = !of_threads && pid >= 0 ? PERF_FLAG_PID_CGROUP : 0;
    return (int)syscall(SYS_perf_event_open, &attr, pid, cpu, -1, flags | PERF_FLAG_FD_CLOEXEC);
}

/* Opens the counter of the tree's CPU time. Returns -1 if the kernel refuses. */
static int open_used(pid_t pid)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof attr,
        .config = PERF_COUNT_SW_TASK_CLOCK,
        .disabled = 1,
        .inherit = 1,
        .enable_on_exec = 1,
    };
    return (int)syscall(SYS_perf_event_open, &attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* Maps the largest ring that the kernel permits, down to RING_BYTES_LEAST. The kernel refuses with
 * EPERM if a ring is too large. Returns false with errno set if the kernel refuses the smallest
 * ring, too, or at once for any other error. */
static bool map_ring(const struct cpu_samples *samples, struct cpu_samples_ring *ring)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    ring->bytes = samples->adaptive ? RING_BYTES_FAST : RING_BYTES_MOST;
    for (; ring->bytes >= RING_BYTES_LEAST; ring->bytes /= 2) {
        void *area =
            mmap(NULL, page_bytes + ring->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
        if (area != MAP_FAILED) {
            ring->page = area;
            return true;
        }
        if (errno != EPERM)
            return false;
    }
    return false;
}

/* Opens a ring for every processor that is online. This includes processors that the program may
 * not use now, because it may move to them. Returns 0 or an errno. */
static int open_rings(struct cpu_samples *samples)
{
    if (REGISTERS == 0)
        return ENOSYS;
    int error = ENODEV;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        int fd = open_event(samples, cpu);
        if (fd < 0 && (errno == ENODEV || errno == EINVAL)) {
            error = samples->count == 0 ? errno : error;
            continue;
        }
        if (fd < 0)
            return errno;
        struct cpu_samples_ring *ring = &samples->rings[samples->count++];
        *ring = (struct cpu_samples_ring){.fd = fd};
        if (!map_ring(samples, ring))
            return errno;
    }
    return samples->count == 0 ? error : 0;
}

static void close_rings(struct cpu_samples *samples)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < samples->count; i++) {
        struct cpu_samples_ring *ring = &samples->rings[i];
        if (ring->page != NULL)
            munmap(ring->page, page_bytes + ring->bytes);
        close(ring->fd);
    }
    samples->count = 0;
    if (samples->used >= 0)
        close(samples->used);
    samples->used = -1;
}

static bool write_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(fd, data, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            errno = written == 0 ? ENOSPC : errno;
            return false;
        }
        data += written;
        bytes -= (size_t)written;
    }
    return true;
}

/* Stops sampling and drops all samples: an incomplete set is useless, and the program may need the
 * disk space. Only the head stays, with the error. */
static void give_up(struct cpu_samples *samples, int error)
{
    close_rings(samples);
    samples->head.error = (uint32_t)error;
    const struct cpu_samples_head head = samples->head;
    if (ftruncate(samples->file, 0) == 0 && lseek(samples->file, 0, SEEK_SET) == 0)
        write_all(samples->file, (const char *)&head,
                  sizeof head); /* without a head, readers reject the file */
}

/* Returns when the rings must be drained after a drain now. */
static uint64_t drain_after(const struct cpu_samples *samples)
{
    bool fast =
        samples->head.scope == CPU_SAMPLES_PROCESSORS && samples->period_ns < CPU_SAMPLES_PERIOD_NS;
    return clock_now_ns() + CPU_SAMPLES_DRAIN_NS / (fast ? FAST_DRAINS : 1);
}

/* Opens the rings with the clocks of the processors. If the kernel does not permit these, and the
 * clock is adaptive, opens the rings with clocks of the threads. Returns 0 or an errno. */
static int open_clocks(struct cpu_samples *samples)
{
    int error = open_rings(samples);
    if (error != 0 && samples->cgroup >= 0) {
        /* The kernel may have no perf events of cgroups (CONFIG_CGROUP_PERF). */
        close_rings(samples);
        samples->cgroup = -1;
        error = open_rings(samples);
    }
    while ((error == EACCES || error == EPERM) && samples->adaptive &&
           samples->head.scope != CPU_SAMPLES_THREADS_IN_USER_MODE) {
        close_rings(samples);
        samples->head.scope++;
        samples->head.period_ns = CPU_SAMPLES_THREADS_NS;
        error = open_rings(samples);
    }
    if (error == 0 && samples->adaptive && samples->head.scope == CPU_SAMPLES_PROCESSORS)
        samples->used = open_used((pid_t)samples->head.pid);
    return error;
}

bool cpu_samples_open(struct cpu_samples *samples, const char *path, pid_t pid, bool adaptive,
                      int cgroup)
{
    samples->file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (samples->file < 0)
        return false;
    samples->adaptive = adaptive;
    samples->cgroup = cgroup;
    samples->used = -1;
    samples->period_ns = adaptive ? CPU_SAMPLES_LEAST_NS : CPU_SAMPLES_PERIOD_NS;
    samples->began_ns = clock_now_ns();
    samples->random = random_of(samples->began_ns);
    samples->head = (struct cpu_samples_head){
        .magic = CPU_SAMPLES_MAGIC,
        .period_ns = samples->period_ns,
        .pid = (uint32_t)pid,
        .scope = CPU_SAMPLES_PROCESSORS,
    };
    int error = open_clocks(samples);
    if (error == 0 && !write_all(samples->file, (const char *)&samples->head, sizeof samples->head))
        error = errno;
    if (error != 0)
        give_up(samples, error);
    samples->due_ns = drain_after(samples);
    return true;
}

uint64_t cpu_samples_due_ns(const struct cpu_samples *samples)
{
    return samples->count == 0 ? UINT64_MAX : samples->due_ns;
}

/* Copies the bytes of a ring from the position `from` on, in two parts if they wrap around the
 * ring's end. */
static void copy_from(const struct cpu_samples_ring *ring, uint64_t from, char *to, size_t bytes)
{
    const char *data = (const char *)ring->page + ring->page->data_offset;
    size_t at = (size_t)from & (ring->bytes - 1);
    size_t first = bytes < ring->bytes - at ? bytes : ring->bytes - at;
    memcpy(to, data + at, first);
    memcpy(to + first, data, bytes - first);
}

/* Returns whether a record is written. One of 2^thinning samples is, at random. The head of each
 * sample gets the exponent, because the sample then stands for so many. */
static bool is_kept(struct cpu_samples *samples, struct perf_event_header *head)
{
    if (head->type != PERF_RECORD_SAMPLE)
        return true;
    if (samples->thinning > 0 && random_below(&samples->random, UINT64_C(1) << samples->thinning))
        return false;
    head->misc |= (uint16_t)(samples->thinning << CPU_SAMPLES_THINNING_SHIFT);
    samples->sample_bytes += head->size;
    return true;
}

/* Writes the new records of a ring to the file, without the samples that are left out. Returns
 * false with errno set if they cannot be written. */
static bool drain_ring(struct cpu_samples *samples, struct cpu_samples_ring *ring)
{
    static char buffer[BUFFER_BYTES];
    size_t used = 0;
    bool written = true;
    /* data_head is where the kernel writes next, data_tail is where we read next. acquire: the
     * kernel writes its records before it moves data_head. release: the records are read before the
     * kernel may overwrite them. */
    uint64_t end = __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
    uint64_t at = ring->page->data_tail;
    while (written && at < end) {
        struct perf_event_header head;
        copy_from(ring, at, (char *)&head, sizeof head);
        if (head.size < sizeof head || head.size > end - at) {
            errno = EIO; /* the kernel writes only whole records */
            return false;
        }
        if (is_kept(samples, &head)) {
            if (head.size > sizeof buffer - used) {
                written = write_all(samples->file, buffer, used);
                used = 0;
            }
            copy_from(ring, at, buffer + used, head.size);
            memcpy(buffer + used, &head, sizeof head);
            used += head.size;
            samples->bytes += head.size;
        }
        at += head.size;
    }
    written = written && write_all(samples->file, buffer, used);
    __atomic_store_n(&ring->page->data_tail, end, __ATOMIC_RELEASE);
    return written;
}

/* Returns the CPU time that the tree has used, or 0 if it is not known. */
static uint64_t used_ns(const struct cpu_samples *samples)
{
    uint64_t cpu_ns = 0;
    if (samples->used < 0 || read(samples->used, &cpu_ns, sizeof cpu_ns) != sizeof cpu_ns)
        return 0;
    return cpu_ns;
}

/* Returns the period that suits a tree that has used `cpu_ns` of CPU time. */
static uint64_t suitable_period_ns(const struct cpu_samples *samples, uint64_t cpu_ns)
{
    uint64_t wall_ns = (clock_now_ns() - samples->began_ns) / IDLE_FACTOR;
    uint64_t period_ns = (cpu_ns > wall_ns ? cpu_ns : wall_ns) / SAMPLES_AIM;
    if (period_ns < CPU_SAMPLES_LEAST_NS)
        return CPU_SAMPLES_LEAST_NS;
    return period_ns < CPU_SAMPLES_PERIOD_NS ? period_ns : CPU_SAMPLES_PERIOD_NS;
}

/* Gives each processor's clock a new period, and writes a record of it. If the clocks are those of
 * threads, only the first thread and the threads that start from now on get the new period. The
 * kernel writes a period into each sample: the one with which the thread's clock began. This is the
 * true period of all threads but the first, and the record has the true period of the first one.
 * Returns false with errno set if the record cannot be written.
 *
 * A change starts the period again, so the CPU time since the last sample is in no sample. The
 * period of a processor therefore changes only if the tree has used the CPU time of CHANGE_PERIODS
 * periods since the last change. */
static bool adapt(struct cpu_samples *samples)
{
    bool of_threads = samples->head.scope != CPU_SAMPLES_PROCESSORS;
    uint64_t cpu_ns = used_ns(samples);
    if (!of_threads && cpu_ns < samples->changed_ns + CHANGE_PERIODS * samples->period_ns)
        return true;
    samples->changed_ns = cpu_ns;
    samples->period_ns = suitable_period_ns(samples, cpu_ns);
    uint64_t period_ns =
        of_threads ? period_of_threads(samples) : varied(samples, samples->period_ns);
    struct {
        struct perf_event_header header;
        struct cpu_samples_period period;
    } record = {
        .header = {.type = CPU_SAMPLES_PERIOD, .size = sizeof record},
        .period = {.period_ns = period_ns, .ns = clock_now_ns()},
    };
    for (size_t i = 0; i < samples->count; i++)
        ioctl(samples->rings[i].fd, PERF_EVENT_IOC_PERIOD, &period_ns);
    samples->bytes += sizeof record;
    return write_all(samples->file, (const char *)&record, sizeof record);
}

void cpu_samples_drain(struct cpu_samples *samples)
{
    static const struct perf_event_header mark = {.type = CPU_SAMPLES_MARK, .size = sizeof mark};
    bool written = true;
    for (size_t i = 0; i < samples->count && written; i++)
        written = drain_ring(samples, &samples->rings[i]);
    written = written && (samples->count == 0 || !samples->adaptive || adapt(samples));
    if (samples->count > 0 &&
        !(written && write_all(samples->file, (const char *)&mark, sizeof mark)))
        give_up(samples, errno);
    else if (samples->bytes > FILE_BYTES_MOST)
        give_up(samples, CPU_SAMPLES_TOO_MANY);
    if (samples->adaptive && samples->thinning < CPU_SAMPLES_THINNING_MOST &&
        samples->sample_bytes > (samples->thinning + 1) * THINNING_BYTES)
        samples->thinning++;
    samples->due_ns = drain_after(samples);
}

void cpu_samples_close(struct cpu_samples *samples)
{
    if (samples->file < 0)
        return;
    cpu_samples_drain(samples);
    close_rings(samples);
    close(samples->file);
    samples->file = -1;
}
