#define _GNU_SOURCE 1

#include "launch/whereabouts.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What functions as small as those of libc that allocators call have beneath their return addresses. */
#define STACK_BYTES 64

/* Of a ring: more than a tenth of a second of notes and of libraries that processes load. Without privileges the
 * kernel lends 512 KiB for each processor. */
#define RING_BYTES_MOST  ((size_t)256 << 10)
#define RING_BYTES_LEAST ((size_t)16 << 10)

#if defined(__x86_64__)
#include <asm/perf_regs.h>
/* The instruction `syscall` leaves its successor's address in rcx: what a call of the kernel is known by. */
#define REGISTERS                                                                                            \
    (UINT64_C(1) << PERF_REG_X86_CX | UINT64_C(1) << PERF_REG_X86_SP | UINT64_C(1) << PERF_REG_X86_IP)
#else
#define REGISTERS UINT64_C(0) /* cairn/whereabouts.py does not know what they would mean */
#endif

static int open_event(pid_t pid, int cpu, bool kernel)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof attr,
        .config = PERF_COUNT_SW_CPU_CLOCK,
        .sample_period = WHEREABOUTS_PERIOD_NS,
        .sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_REGS_USER |
                       PERF_SAMPLE_STACK_USER,
        .sample_regs_user = REGISTERS,
        .sample_stack_user = STACK_BYTES,
        .disabled = 1,
        .inherit = 1,
        .enable_on_exec = 1,
        .exclude_kernel = !kernel,
        .exclude_hv = !kernel,
        .mmap = 1,
        .mmap2 = 1,
        .comm = 1,
        .comm_exec = 1,
        .task = 1,
        .sample_id_all = 1,
    };
    return (int)syscall(SYS_perf_event_open, &attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

/* As large as the kernel lends one; false with errno set. */
static bool map_ring(struct whereabouts_ring *ring)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (ring->bytes = RING_BYTES_MOST; ring->bytes >= RING_BYTES_LEAST; ring->bytes /= 2) {
        void *area = mmap(NULL, page_bytes + ring->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
        if (area != MAP_FAILED) {
            ring->page = area;
            return true;
        }
        if (errno != EPERM)
            return false;
    }
    return false;
}

/* Of every processor on which the program may be; 0 or errno. */
static int open_rings(struct whereabouts *whereabouts, const struct options *options, pid_t pid)
{
    if (REGISTERS == 0)
        return ENOSYS;
    whereabouts->head.kernel = 1;
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    for (int cpu = 0; cpu < cpus && cpu < CPU_SETSIZE; cpu++) {
        if (options->has_cpus && !CPU_ISSET((size_t)cpu, &options->cpus))
            continue;
        int fd = open_event(pid, cpu, whereabouts->head.kernel);
        if (fd < 0 && (errno == EACCES || errno == EPERM) && whereabouts->count == 0 &&
            whereabouts->head.kernel) {
            whereabouts->head.kernel = 0; /* perf_event_paranoid is 2 or higher */
            fd = open_event(pid, cpu, false);
        }
        if (fd < 0 && errno == ENODEV)
            continue; /* that processor is off */
        if (fd < 0)
            return errno;
        struct whereabouts_ring *ring = &whereabouts->rings[whereabouts->count++];
        *ring = (struct whereabouts_ring){.fd = fd};
        if (!map_ring(ring))
            return errno;
    }
    return whereabouts->count == 0 ? ENODEV : 0;
}

static void close_rings(struct whereabouts *whereabouts)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < whereabouts->count; i++) {
        struct whereabouts_ring *ring = &whereabouts->rings[i];
        if (ring->page != NULL)
            munmap(ring->page, page_bytes + ring->bytes);
        close(ring->fd);
    }
    whereabouts->count = 0;
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

bool whereabouts_open(struct whereabouts *whereabouts, const struct options *options, pid_t pid)
{
    whereabouts->head =
        (struct whereabouts_head){.magic = WHEREABOUTS_MAGIC, .period_ns = WHEREABOUTS_PERIOD_NS};
    whereabouts->file = open(options->whereabouts_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (whereabouts->file < 0)
        return false;
    int error = open_rings(whereabouts, options, pid);
    if (error != 0)
        close_rings(whereabouts);
    whereabouts->head.error = (uint32_t)error;
    whereabouts->due_ns = clock_now_ns() + WHEREABOUTS_DRAIN_NS;
    return write_all(whereabouts->file, (const char *)&whereabouts->head, sizeof whereabouts->head);
}

uint64_t whereabouts_due_ns(const struct whereabouts *whereabouts)
{
    return whereabouts->count == 0 ? UINT64_MAX : whereabouts->due_ns;
}

/* One whole stretch, in two parts where it goes over the ring's end. */
static bool drain_ring(struct whereabouts_ring *ring, int file)
{
    const char *data = (const char *)ring->page + ring->page->data_offset;
    /* acquire: the kernel's records before their announcement; release: read before they may be overwritten */
    uint64_t head = __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
    uint64_t tail = ring->page->data_tail;
    size_t at = (size_t)tail & (ring->bytes - 1), bytes = (size_t)(head - tail);
    size_t first = bytes < ring->bytes - at ? bytes : ring->bytes - at;
    bool written = write_all(file, data + at, first) && write_all(file, data, bytes - first);
    __atomic_store_n(&ring->page->data_tail, head, __ATOMIC_RELEASE);
    return written;
}

void whereabouts_drain(struct whereabouts *whereabouts)
{
    for (size_t i = 0; i < whereabouts->count && whereabouts->head.error == 0; i++) {
        if (!drain_ring(&whereabouts->rings[i], whereabouts->file))
            whereabouts->head.error = (uint32_t)errno;
    }
    whereabouts->due_ns = clock_now_ns() + WHEREABOUTS_DRAIN_NS;
}

void whereabouts_close(struct whereabouts *whereabouts)
{
    if (whereabouts->file < 0)
        return;
    whereabouts_drain(whereabouts);
    close_rings(whereabouts);
    /* The head is there, so that to write it again takes no room. */
    ssize_t written = pwrite(whereabouts->file, &whereabouts->head, sizeof whereabouts->head, 0);
    (void)written;
    close(whereabouts->file);
    whereabouts->file = -1;
}
