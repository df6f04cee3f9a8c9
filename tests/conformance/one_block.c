/* Allocates one block and frees it; prints the most kilobytes that were resident, without a further allocation. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    (void)argv;
    char *volatile p = malloc(100);
    *p = 1;
    free(p);
    if (argc > 1)
        return 0;
    static char text[8192];
    int status = open("/proc/self/status", O_RDONLY);
    if (status < 0 || read(status, text, sizeof text - 1) <= 0)
        return 1;
    const char *from = strstr(text, "VmHWM:");
    if (from == NULL)
        return 1;
    from += strcspn(from, "0123456789");
    return write(STDOUT_FILENO, from, strspn(from, "0123456789")) > 0 ? 0 : 1;
}
