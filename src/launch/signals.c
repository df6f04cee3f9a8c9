#define _GNU_SOURCE 1

#include "launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

static const int waited_for[] = {
    SIGCHLD, SIGCONT,  SIGTSTP,                            /* a child has ended; job control */
    SIGINT,  SIGTERM,  SIGHUP,  SIGQUIT, SIGUSR1, SIGUSR2, /* these are passed on to PROG */
    SIGALRM, SIGWINCH,
};

/* These signals would end or stop the launcher, so they are blocked. A system call then returns an
 * error instead: for a closed report, for a terminal that is gone, and for a file at its size
 * limit. */
static const int unwanted[] = {SIGPIPE, SIGTTOU, SIGTTIN, SIGXFSZ};

static bool is_ignored(int signal)
{
    struct sigaction action;
    return sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

bool signals_take(struct signals *signals)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &standard, &signals->inherited_child);

    sigset_t blocked;
    sigset_t taken;
    sigemptyset(&taken);
    for (size_t i = 0; i < COUNT_OF(waited_for); i++) {
        if (!is_ignored(waited_for[i]))
            sigaddset(&taken, waited_for[i]);
    }
    blocked = taken;
    for (size_t i = 0; i < COUNT_OF(unwanted); i++)
        sigaddset(&blocked, unwanted[i]);
    sigprocmask(SIG_BLOCK, &blocked, &signals->inherited_mask);
    signals->fd = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    return signals->fd >= 0;
}

void signals_restore(const struct signals *signals)
{
    sigaction(SIGCHLD, &signals->inherited_child, NULL);
    sigprocmask(SIG_SETMASK, &signals->inherited_mask, NULL);
}

int signals_next(const struct signals *signals)
{
    struct signalfd_siginfo info;
    return read(signals->fd, &info, sizeof info) == (ssize_t)sizeof info ? (int)info.ssi_signo : 0;
}

bool signals_stop_us(int signal, bool whole_group)
{
    sigset_t stop;
    sigset_t resume;
    sigset_t before;
    sigemptyset(&stop);
    sigaddset(&stop, signal);
    sigemptyset(&resume);
    sigaddset(&resume, SIGCONT);
    kill(whole_group ? 0 : getpid(), signal);
    sigprocmask(SIG_UNBLOCK, &stop, &before); /* the signal arrives and stops us inside this call */
    sigprocmask(SIG_SETMASK, &before, NULL);
    return sigtimedwait(&resume, NULL, &(struct timespec){0}) == SIGCONT;
}
