/* fork_writes.c PAGES CHILD PARENT BOTH GROWTH - after a fork, parent and child write to pages that
 * they share.
 *
 * The program fills PAGES pages of 4 KiB and forks. The child writes to CHILD of the shared pages,
 * the parent to PARENT others, and both to BOTH more. Each also takes GROWTH new pages. Then both
 * sleep, so that they can be measured. So CHILD + PARENT + BOTH pages are copied.
 */
#define _GNU_SOURCE 1

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

static char *map(size_t pages)
{
    char *area =
        mmap(NULL, (pages + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        exit(1);
    madvise(area, (pages + 1) * PAGE, MADV_NOHUGEPAGE); /* a huge page may be copied whole */
    return area;
}

static void fill(char *area, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++)
        area[i * PAGE] = 1;
}

int main(int argc, char **argv)
{
    size_t number[5] = {0};
    for (int i = 1; i < argc && i <= 5; i++)
        number[i - 1] = strtoul(argv[i], NULL, 10);
    size_t pages = number[0], child = number[1], parent = number[2], both = number[3];
    if (child + parent + both > pages)
        return 2;
    char *area = map(pages);
    fill(area, 0, pages);
    usleep(100000);
    pid_t pid = fork();
    if (pid < 0)
        return 1;
    if (pid == 0)
        fill(area, 0, child);
    else
        fill(area, child, child + parent);
    fill(area, child + parent, child + parent + both);
    fill(map(number[4]), 0, number[4]);
    usleep(400000);
    if (pid == 0)
        _exit(0);
    int status;
    return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1;
}
