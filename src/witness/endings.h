/* endings.h - records how processes end, for the reader of the witness file (record.h).
 *
 * The library interposes the functions that wait for a child, and those that end a process without
 * exit handlers. It also registers an exit handler. So a process that ends by itself marks its end,
 * and a process that waits for a child records each end that is not an exit with status 0. Always:
 *
 * - An interposed function does exactly what the real one does, and leaves errno as the real one
 *   left it. A wait that returns no ended child writes nothing, nor does one that leaves the child
 *   to be waited for again (WNOWAIT).
 * - It may run in a vfork child, in a signal handler, and on a small stack. - It uses only system
 * calls and its own stack frame, which is less than 1 KiB. - It takes no lock, allocates nothing,
 * and is not a cancellation point beyond the real function.
 *
 * Some ends are not seen here: libc itself waits in fclose() and ends processes in daemon(), and a
 * program may make the system calls directly. A static program marks nothing. A process that gives
 * up new privileges, as one does before it forbids itself system calls (seccomp), records nothing
 * from then on. */
#ifndef CAIRN_WITNESS_ENDINGS_H
#define CAIRN_WITNESS_ENDINGS_H

/* Finds the real functions, for the reason that exec_prepare() has. */
void endings_prepare(void);

/* Registers the exit handler of this process and of all its forked children. `exe` is the path of
 * the program. The constructor calls this once, if there is a file to write to. */
void endings_begin(const char *exe);

#endif
