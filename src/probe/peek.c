#include "probe/peek.h"

#include "probe/direct_syscall.h"

#include <string.h>
#include <sys/uio.h>

static bool holds(const struct peek *peek, uintptr_t from, size_t bytes)
{
    return from - peek->start < peek->bytes && bytes <= peek->bytes - (from - peek->start);
}

bool peek_at(struct peek *peek, uintptr_t from, void *to, size_t bytes)
{
    if (from - peek->safe_start < peek->safe_bytes &&
        bytes <= peek->safe_bytes - (from - peek->safe_start)) {
        memcpy(to, (const void *)from, bytes);
        return true;
    }
    if (UNLIKELY(!holds(peek, from, bytes))) {
        struct iovec here = {.iov_base = peek->data, .iov_len = sizeof peek->data};
        struct iovec there = {.iov_base = (void *)from, .iov_len = sizeof peek->data};
        peek->bytes = 0;
        if (direct_forbidden)
            return false;
        /* The id of the process is not kept, because a child of clone() has another one. */
        long got = direct_call(SYS_process_vm_readv, direct_call0(SYS_getpid), (long)&here, 1,
                               (long)&there, 1, 0);
        if (direct_failed(got))
            return false;
        peek->start = from;
        peek->bytes = (size_t)got;
        if (!holds(peek, from, bytes))
            return false;
    }
    memcpy(to, peek->data + (from - peek->start), bytes);
    return true;
}
