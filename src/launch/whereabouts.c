#define _GNU_SOURCE 1

#include "launch/whereabouts.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Beneath the return addresses of functions of libc that allocators call: those that sleep have the largest frames. */
#define STACK_BYTES 256

/* Of a ring: half a second of notes, or the libraries that a thousand processes load. Without privileges the kernel
 * lends 512 KiB for each processor. */
#define RING_BYTES_MOST  ((size_t)256 << 10)
#define RING_BYTES_LEAST ((size_t)16 << 10)

#if defined(__x86_64__)
#include <asm/perf_regs.h>
#define REGISTERS (UINT64_C(1) << PERF_REG_X86_SP | UINT64_C(1) << PERF_REG_X86_IP)
#else
#define REGISTERS UINT64_C(0) /* cairn/profile/cpu_samples.py does not know what they would mean */
#endif

/* In all: half an hour of two processors. Who writes more than that may take room that the program needs. */
#define FILE_BYTES_MOST (UINT64_C(1) << 30)

static int open_event(int cpu)
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
        .exclude_idle = 1,
        .mmap = 1,
        .mmap2 = 1,
        .comm = 1,
        .comm_exec = 1,
        .task = 1,
        .sample_id_all = 1,
    };
    return (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

/* As large as the kernel lends one; false with errno set. */
static bool map_ring(struct whereabouts_ring *ring)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (ring->bytes = RING_BYTES_MOST; ring->bytes >= RING_BYTES_LEAST; ring->bytes /= 2) {
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

/* Of every processor that there is and is on, also those that the program may not use: it may leave for them. 0 or
 * errno. */
static int open_rings(struct whereabouts *whereabouts)
{
    if (REGISTERS == 0)
        return ENOSYS;
    int error = ENODEV;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        int fd = open_event(cpu);
        if (fd < 0 && (errno == ENODEV || errno == EINVAL)) {
            error = whereabouts->count == 0 ? errno : error;
            continue;
        }
        if (fd < 0)
            return errno;
        struct whereabouts_ring *ring = &whereabouts->rings[whereabouts->count++];
        *ring = (struct whereabouts_ring){.fd = fd};
        if (!map_ring(ring))
            return errno;
    }
    return whereabouts->count == 0 ? error : 0;
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

/* Notes of which some are missing are none, and what they took may be what the program needs. */
static void give_up(struct whereabouts *whereabouts, int error)
{
    close_rings(whereabouts);
    whereabouts->head.error = (uint32_t)error;
    const struct whereabouts_head head = whereabouts->head;
    if (ftruncate(whereabouts->file, 0) == 0 && lseek(whereabouts->file, 0, SEEK_SET) == 0)
        write_all(whereabouts->file, (const char *)&head,
                  sizeof head); /* without one nothing is believed */
}

bool whereabouts_open(struct whereabouts *whereabouts, const char *path, pid_t pid)
{
    whereabouts->file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (whereabouts->file < 0)
        return false;
    whereabouts->head = (struct whereabouts_head){
        .magic = WHEREABOUTS_MAGIC,
        .period_ns = WHEREABOUTS_PERIOD_NS,
        .pid = (uint32_t)pid,
    };
    int error = open_rings(whereabouts);
    if (error == 0 &&
        !write_all(whereabouts->file, (const char *)&whereabouts->head, sizeof whereabouts->head))
        error = errno;
    if (error != 0)
        give_up(whereabouts, error);
    whereabouts->due_ns = clock_now_ns() + WHEREABOUTS_DRAIN_NS;
    return true;
}

uint64_t whereabouts_due_ns(const struct whereabouts *whereabouts)
{
    return whereabouts->count == 0 ? UINT64_MAX : whereabouts->due_ns;
}

/* One whole stretch, in two parts where it goes over the ring's end. */
static bool drain_ring(struct whereabouts *whereabouts, struct whereabouts_ring *ring)
{
    int file = whereabouts->file;
    const char *data = (const char *)ring->page + ring->page->data_offset;
    /* acquire: the kernel's records before their announcement; release: read before they may be overwritten */
    uint64_t head = __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
    uint64_t tail = ring->page->data_tail;
    size_t at = (size_t)tail & (ring->bytes - 1), bytes = (size_t)(head - tail);
    size_t first = bytes < ring->bytes - at ? bytes : ring->bytes - at;
    bool written = write_all(file, data + at, first) && write_all(file, data, bytes - first);
    whereabouts->bytes += bytes;
    __atomic_store_n(&ring->page->data_tail, head, __ATOMIC_RELEASE);
    return written;
}

void whereabouts_drain(struct whereabouts *whereabouts)
{
    static const struct perf_event_header mark = {.type = WHEREABOUTS_MARK, .size = sizeof mark};
    bool written = true;
    for (size_t i = 0; i < whereabouts->count && written; i++)
        written = drain_ring(whereabouts, &whereabouts->rings[i]);
    if (whereabouts->count > 0 &&
        !(written && write_all(whereabouts->file, (const char *)&mark, sizeof mark)))
        give_up(whereabouts, errno);
    else if (whereabouts->bytes > FILE_BYTES_MOST)
        give_up(whereabouts, EFBIG);
    whereabouts->due_ns = clock_now_ns() + WHEREABOUTS_DRAIN_NS;
}

void whereabouts_close(struct whereabouts *whereabouts)
{
    if (whereabouts->file < 0)
        return;
    whereabouts_drain(whereabouts);
    close_rings(whereabouts);
    close(whereabouts->file);
    whereabouts->file = -1;
}
