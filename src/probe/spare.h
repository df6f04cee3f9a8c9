/* spare.h - provides memory for the record of a process that cannot make a file of its own.
 *
 * A process may have given up the right to make files, by setuid, chroot or a limit on descriptors
 * or file sizes. Or the disk may be full. record/spare.h describes the memory that it uses then.
 * Each program image maps a window of this memory when it starts, before it can give up a right.
 * Forked children inherit the mapping, so that they need no right and no system call.
 *
 *     spare_open() found no memory, or was not called  =>  the other functions do nothing
 *
 * session.c calls the first four functions, under its lock or before a second thread counts.
 * Processes that share a window need no lock.
 */
#ifndef CAIRN_PROBE_SPARE_H
#define CAIRN_PROBE_SPARE_H

#include "base/base.h"

/* Maps a window for this program image. `option` is the value of CAIRN_PROBE_SPARE, or NULL. Only
 * the first call has an effect. */
void spare_open(const char *option);

/* Begins a record of `bytes` bytes, all zeroes. Returns its memory, or NULL if there is no room. If
 * the window is full, tries to map another one. */
void *spare_begin(uint64_t bytes);

/* Takes `bytes` more bytes for the record that this process began last, all zeroes. Returns NULL if
 * there is no room. The memory has a higher address than the beginning of the record, and other
 * records may lie between the two. */
void *spare_extend(uint64_t bytes);

/* Notes that this process could not be recorded. `error` is the errno of its file. Returns false if
 * this cannot be noted either. */
bool spare_note_unrecorded(uint32_t process, uint32_t error, const char *program);

/* Returns whether a program that this process executes now will inherit the descriptor of the
 * memory. Returns false if that is not known. */
bool spare_is_inherited(void);

/* Notes that a process executes a program (struct spare_executed). Any thread may call this. */
void spare_note_executed(uint32_t process, uint32_t error, const char *kind, const char *program);

/* Takes back the latest note about a process, because its exec failed. */
void spare_forget_executed(uint32_t process);

#endif
