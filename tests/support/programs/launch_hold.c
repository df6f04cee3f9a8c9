/* launch_hold.c - holds a known amount of memory of a known kind, in pages of 4 KiB. So the test
 * knows every figure that the launcher must report.
 *
 *     hold SHAPE MIB MILLISECONDS [FILE]
 *
 *     plain      fills MIB and sleeps for MILLISECONDS
 *     children   four children do the same as "plain" at once
 *     file       fills 10 MiB, reads FILE, and sleeps
 *     lazy       fills MIB, gives it back by MADV_FREE, and sleeps
 *     burst      sleeps, fills and unmaps MIB, and sleeps again
 *     shared     fills shared memory that three children read while they sleep
 *     spin       computes for MILLISECONDS of CPU time
 *     spinners   three descendants compute, one of them an orphan
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void nap(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static char *fill(size_t bytes)
{
    char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        _exit(9);
    madvise(area, bytes, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < bytes; at += 4096)
        area[at] = 1;
    return area;
}

static void spin(long ms)
{
    struct timespec now;
    do
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < ms);
}

int main(int argc, char **argv)
{
    const char *shape = argv[1];
    size_t bytes = (size_t)(atof(argv[2]) * 1048576);
    long ms = atol(argv[3]);
    if (strcmp(shape, "plain") == 0) {
        fill(bytes);
        nap(ms);
    } else if (strcmp(shape, "children") == 0) {
        int all[2]; /* the children wait until all memory is filled */
        char byte;
        if (pipe(all) != 0)
            return 9;
        for (int i = 0; i < 4; i++) {
            if (fork() == 0) {
                fill(bytes);
                close(all[1]);
                if (read(all[0], &byte, 1) != 0)
                    _exit(9);
                nap(ms);
                _exit(0);
            }
        }
        close(all[1]);
        while (wait(NULL) > 0) {
        }
    } else if (strcmp(shape, "file") == 0) {
        static char buffer[65536];
        fill(10 << 20);
        int fd = open(argv[4], O_RDONLY);
        while (read(fd, buffer, sizeof buffer) > 0) {
        }
        nap(ms);
    } else if (strcmp(shape, "lazy") == 0) {
        char *area = fill(bytes);
        nap(300);
        madvise(area, bytes, MADV_FREE);
        nap(ms);
    } else if (strcmp(shape, "burst") == 0) {
        nap(ms);
        char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(area, bytes, MADV_HUGEPAGE); /* filling is faster with huge pages */
        for (size_t at = 0; at < bytes; at += 4096)
            area[at] = 1;
        munmap(area, bytes);
        nap(ms);
    } else if (strcmp(shape, "shared") == 0) {
        int fd = memfd_create("shared", 0);
        if (ftruncate(fd, (off_t)bytes) != 0)
            return 9;
        char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        memset(area, 1, bytes);
        for (int i = 0; i < 3; i++) {
            if (fork() == 0) {
                volatile char sum = 0;
                for (size_t at = 0; at < bytes; at += 4096)
                    sum = (char)(sum + area[at]);
                nap(ms);
                _exit(0);
            }
        }
        while (wait(NULL) > 0) {
        }
    } else if (strcmp(shape, "spin") == 0) {
        spin(ms);
    } else if (strcmp(shape, "spinners") == 0) {
        /* Two children for which this process waits, and one orphan. */
        for (int i = 0; i < 2; i++) {
            if (fork() == 0) {
                spin(ms);
                _exit(0);
            }
        }
        while (wait(NULL) > 0) {
        }
        if (fork() == 0) {
            if (fork() == 0) {
                spin(ms);
                _exit(0);
            }
            _exit(0);
        }
        wait(NULL);
        nap(10 * ms);
    } else {
        return 9;
    }
    return 0;
}
