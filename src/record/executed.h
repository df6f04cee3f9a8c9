/* executed.h - how the witness tells the probe which programs the process executes.
 *
 * The witness (src/witness) notes each program in its file. A process that has given up rights may
 * be unable to write there. The witness then calls the probe, which notes the program in the spare
 * memory (spare.h). Both functions are weak: their addresses are NULL if the probe is not loaded.
 * They allocate nothing, take no lock and do not change errno, so they may be called in a child of
 * vfork.
 */
#ifndef CAIRN_RECORD_EXECUTED_H
#define CAIRN_RECORD_EXECUTED_H

#include "base/base.h"

/* Notes that `process` executes the program `path`. `kind` is a kind of witness/record.h, and
 * `error` is the errno with which the witness could not write its file. */
__attribute__((weak)) void cairn_probe_executed(uint32_t process, const char *path,
                                                const char *kind, uint32_t error);

/* Takes back the latest note about `process`, because the exec failed. */
__attribute__((weak)) void cairn_probe_not_executed(uint32_t process);

#endif
