/* exec.h - records every program that this process executes, so that the reader of the witness file
 * (record.h) knows which programs wrote no record of their start.
 *
 * The library interposes exec* and posix_spawn*. Always:
 *
 * - An interposed function does exactly what the real one does, and leaves errno as the real one
 *   left it.
 * - It may run in a vfork child, in a signal handler and on a small stack.
 * - It uses only system calls and its own stack frame: less than 3 KiB, plus the length of PATH if
 *   it searches for the file.
 * - It takes no lock, and uses no memory of the program.
 * - It makes no system call of its own, and so records nothing, if the process has installed a
 *   filter of system calls (sandbox.h).
 */
#ifndef CAIRN_WITNESS_EXEC_H
#define CAIRN_WITNESS_EXEC_H

/* Finds the real functions with dlsym, which takes the loader's lock. The constructor calls this,
 * so that later no interposed function takes this lock in a forked child. */
void exec_prepare(void);

#endif
