/* peek.h - reads memory of the process that may not be there: a wrong address is an error and not a
 * crash.
 *
 * The kernel copies the bytes (process_vm_readv), up to PEEK_BYTES at a time. Most reads find their
 * bytes in the last copy and need no system call. Such bytes are those of the moment of the copy.
 * Bytes in the range that the caller names as safe are read directly. A struct peek belongs to one
 * thread.
 */
#ifndef CAIRN_PROBE_PEEK_H
#define CAIRN_PROBE_PEEK_H

#include "base/base.h"

enum { PEEK_BYTES = 1024 };

struct peek {
    /* The caller knows that [safe_start, safe_start + safe_bytes) can be read. */
    uintptr_t safe_start;
    size_t safe_bytes;
    /* The bytes [start, start + bytes) were copied into `data`. */
    uintptr_t start;
    size_t bytes;
    unsigned char data[PEEK_BYTES];
};

/* Copies `bytes` bytes, at most PEEK_BYTES, from `from` to `to`. Returns false if they cannot be
 * read. */
bool peek_at(struct peek *peek, uintptr_t from, void *to, size_t bytes);

static inline bool peek_word(struct peek *peek, uintptr_t from, uintptr_t *to)
{
    return peek_at(peek, from, to, sizeof *to);
}

#endif
