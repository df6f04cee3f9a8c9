#define _GNU_SOURCE 1

#include "launch/touch.h"

#include "launch/complaint.h"
#include "launch/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

bool touch_memory(uint64_t bytes)
{
    char text[4096];
    uint64_t available_kib;
    if (file_read_at(AT_FDCWD, "/proc/meminfo", text, sizeof text) &&
        file_field(text, "MemAvailable:", &available_kib) && bytes / 1024 > available_kib) {
        complaint("--touch asks for more memory than is available", NULL, 0);
        return false;
    }
    char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) {
        complaint("cannot map the memory for --touch", NULL, errno);
        return false;
    }
    /* Small pages are touched, because every machine has them. The memory that the host provides
     * for small pages can later be used as huge pages, too. */
    madvise(area, bytes, MADV_NOHUGEPAGE);
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint64_t at = 0; at < bytes; at += page_bytes)
        *(volatile char *)(area + at) = 1;
    munmap(area, bytes);
    return true;
}
