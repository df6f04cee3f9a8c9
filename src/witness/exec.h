/* exec.h - notes every program that this one executes, so that the reader knows which of them gave no
 * proof.
 *
 * Stands in front of exec* and posix_spawn*. A hook changes nothing in what the call does, and leaves errno
 * as the real call left it. It may run in a vfork child, in a signal handler, on a small stack: system
 * calls and its own frame (below 3 KiB, and the length of PATH where it is searched), no lock, no memory of
 * anybody else.
 */
#ifndef CAIRN_WITNESS_EXEC_H
#define CAIRN_WITNESS_EXEC_H

/* Finds the real functions. For the constructor, so that no hook has to take the loader's lock in a
 * forked child. */
void exec_prepare(void);

#endif
