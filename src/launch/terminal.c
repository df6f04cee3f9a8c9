#define _GNU_SOURCE 1

#include "launch/terminal.h"

#include <fcntl.h>
#include <unistd.h>

void terminal_open(struct terminal *terminal)
{
    *terminal = (struct terminal){.fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)};
}

void terminal_lend(struct terminal *terminal, pid_t group)
{
    if (terminal->fd < 0 || tcgetpgrp(terminal->fd) != getpgrp())
        return;
    if (tcsetpgrp(terminal->fd, group) == 0)
        terminal->borrower = group;
}

void terminal_take_back(struct terminal *terminal)
{
    if (terminal->borrower == 0)
        return;
    if (tcgetpgrp(terminal->fd) == terminal->borrower)
        tcsetpgrp(terminal->fd, getpgrp());
    terminal->borrower = 0;
}
