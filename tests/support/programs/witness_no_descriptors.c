/* Executes a program when no descriptor is free. */
#include <fcntl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char *args[] = {argv[1], NULL};
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) {
    }
    execv(argv[1], args);
    return 9;
}
