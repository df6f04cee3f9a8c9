/* endings.h - records how processes end, for the reader of the witness file (record.h).
 *
 * The library interposes the functions that wait for a child, and those that end a process without
 * exit handlers. It also registers an exit handler. So a process that ends by itself marks its end.
 * A process that waits for a child records each end of a child that is not an exit with status 0.
 *
 * An interposed function does exactly what the real one does, and leaves errno as the real one left
 * it. A wait writes nothing if it returns no ended child, or if it leaves the child to be waited
 * for again (WNOWAIT). An interposed function may run in a vfork child, in a signal handler, and on
 * a small stack. So it uses only system calls and its own stack frame of less than 1 KiB, takes no
 * lock and allocates nothing. It is a cancellation point only if the real function is one.
 *
 * Some ends are not seen here: libc itself waits in fclose() and ends processes in daemon(), and a
 * program may make the system calls directly. A static program marks nothing. A process that gives
 * up new privileges, or installs a filter of system calls, records no end from then on
 * (sandbox.h). */
#ifndef CAIRN_WITNESS_ENDINGS_H
#define CAIRN_WITNESS_ENDINGS_H

/* Finds the real functions with dlsym, which takes the loader's lock. The constructor calls this,
 * so that later no interposed function takes this lock in a forked child. */
void endings_prepare(void);

/* Registers the exit handler of this process and of all its forked children. `exe` is the path of
 * the program. The constructor calls this once, if there is a file to write to. */
void endings_begin(const char *exe);

#endif
