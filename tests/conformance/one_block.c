/* Allocates one block and frees it; prints, without a further allocation, the kilobytes that are resident while the block
 * lives, as the kernel counts them by walking the page tables. Nothing is given back before, so that this is the peak too;
 * VmHWM and getrusage() read counters that each CPU keeps up to 64 pages of for itself. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    (void)argv;
    char *volatile p = malloc(100);
    *p = 1;
    static char text[8192];
    if (argc == 1) {
        int pages = open("/proc/self/smaps_rollup", O_RDONLY);
        if (pages < 0 || read(pages, text, sizeof text - 1) <= 0)
            return 1;
    }
    free(p);
    if (argc > 1)
        return 0;
    const char *from = strstr(text, "\nRss:");
    if (from == NULL)
        return 1;
    from += strcspn(from, "0123456789");
    return write(STDOUT_FILENO, from, strspn(from, "0123456789")) > 0 ? 0 : 1;
}
