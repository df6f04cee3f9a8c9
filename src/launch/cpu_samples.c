#define _GNU_SOURCE 1

#include "launch/cpu_samples.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Bytes of the stack in each sample. When an allocator has called a function of libc, the bytes
 * must include the return address into the allocator. 256 bytes are enough even for the libc
 * functions that sleep, which have the largest stack frames. */
#define STACK_BYTES 256

/* Largest and smallest size of a ring; map_ring() halves the size until the kernel permits it. The
 * largest ring has room for half a second of samples, or for the records of the libraries that a
 * thousand processes load. Without privileges the kernel permits 512 KiB per processor. */
#define RING_BYTES_MOST  ((size_t)256 << 10)
#define RING_BYTES_LEAST ((size_t)16 << 10)

#if defined(__x86_64__)
#include <asm/perf_regs.h>
#define REGISTERS (UINT64_C(1) << PERF_REG_X86_SP | UINT64_C(1) << PERF_REG_X86_IP)
#else
#define REGISTERS UINT64_C(0) /* cpu_samples.py does not know other registers */
#endif

/* Limit for the size of the file. The samples of two processors reach this size after half an hour.
 * A larger file could take disk space that the program needs. */
#define FILE_BYTES_MOST (UINT64_C(1) << 30)

static int open_event(int cpu)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof attr,
        .config = PERF_COUNT_SW_CPU_CLOCK,
        .sample_period = CPU_SAMPLES_PERIOD_NS,
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

/* Maps the largest ring that the kernel permits, from RING_BYTES_MOST down to RING_BYTES_LEAST. The
 * kernel refuses with EPERM if a ring is too large. Returns false with errno set if the kernel
 * refuses the smallest ring, too, or at once for any other error. */
static bool map_ring(struct cpu_samples_ring *ring)
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

/* Opens a ring for every processor that is online. This includes processors that the program may
 * not use now, because it may move to them. Returns 0 or an errno. */
static int open_rings(struct cpu_samples *samples)
{
    if (REGISTERS == 0)
        return ENOSYS;
    int error = ENODEV;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        int fd = open_event(cpu);
        if (fd < 0 && (errno == ENODEV || errno == EINVAL)) {
            error = samples->count == 0 ? errno : error;
            continue;
        }
        if (fd < 0)
            return errno;
        struct cpu_samples_ring *ring = &samples->rings[samples->count++];
        *ring = (struct cpu_samples_ring){.fd = fd};
        if (!map_ring(ring))
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

bool cpu_samples_open(struct cpu_samples *samples, const char *path, pid_t pid)
{
    samples->file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (samples->file < 0)
        return false;
    samples->head = (struct cpu_samples_head){
        .magic = CPU_SAMPLES_MAGIC,
        .period_ns = CPU_SAMPLES_PERIOD_NS,
        .pid = (uint32_t)pid,
    };
    int error = open_rings(samples);
    if (error == 0 && !write_all(samples->file, (const char *)&samples->head, sizeof samples->head))
        error = errno;
    if (error != 0)
        give_up(samples, error);
    samples->due_ns = clock_now_ns() + CPU_SAMPLES_DRAIN_NS;
    return true;
}

uint64_t cpu_samples_due_ns(const struct cpu_samples *samples)
{
    return samples->count == 0 ? UINT64_MAX : samples->due_ns;
}

/* Writes all new records of a ring to the file, in two parts if they wrap around the ring's end. */
static bool drain_ring(struct cpu_samples *samples, struct cpu_samples_ring *ring)
{
    int file = samples->file;
    const char *data = (const char *)ring->page + ring->page->data_offset;
    /* data_head is where the kernel writes next, data_tail is where we read next. acquire: the
     * kernel writes its records before it moves data_head. release: the records are read before the
     * kernel may overwrite them. */
    uint64_t head = __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
    uint64_t tail = ring->page->data_tail;
    size_t at = (size_t)tail & (ring->bytes - 1), bytes = (size_t)(head - tail);
    size_t first = bytes < ring->bytes - at ? bytes : ring->bytes - at;
    bool written = write_all(file, data + at, first) && write_all(file, data, bytes - first);
    samples->bytes += bytes;
    __atomic_store_n(&ring->page->data_tail, head, __ATOMIC_RELEASE);
    return written;
}

void cpu_samples_drain(struct cpu_samples *samples)
{
    static const struct perf_event_header mark = {.type = CPU_SAMPLES_MARK, .size = sizeof mark};
    bool written = true;
    for (size_t i = 0; i < samples->count && written; i++)
        written = drain_ring(samples, &samples->rings[i]);
    if (samples->count > 0 &&
        !(written && write_all(samples->file, (const char *)&mark, sizeof mark)))
        give_up(samples, errno);
    else if (samples->bytes > FILE_BYTES_MOST)
        give_up(samples, EFBIG);
    samples->due_ns = clock_now_ns() + CPU_SAMPLES_DRAIN_NS;
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
