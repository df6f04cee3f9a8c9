/* interpose.c - the allocating functions of C, POSIX and glibc. Each function counts the operation
 * (account.h) and calls the allocator's function of the same name (next.h).
 *
 * While the probe searches for the allocator's functions, it serves allocations with early blocks
 * (next.h).
 */
#include "probe/account.h"
#include "probe/next.h"

#include <errno.h>
#include <string.h>

#define INTERPOSED __attribute__((visibility("default")))

/* --- early blocks ----------------------------------------------------------------------------- */

/* Copies an early block (next_early_block()) into a new block. If the allocator is not found yet,
 * the new block is an early block, too. */
static void *early_realloc(void *old, size_t bytes)
{
    void *block = next_found() ? next.malloc(bytes) : next_early_block(bytes);
    if (block != NULL && old != NULL)
        memcpy(block, old, bytes < next_early_rest(old) ? bytes : next_early_rest(old));
    return block;
}

/* --- allocating ------------------------------------------------------------------------------- */

INTERPOSED void *malloc(size_t bytes)
{
    struct thread_state *me = &thread_state;
    if (UNLIKELY(!account_enter(me, PROFILE_MALLOC, bytes, NULL)))
        return account_late(me, PROFILE_MALLOC,
                            next_found() ? next.malloc(bytes) : next_early_block(bytes), bytes);
    void *block = next.malloc(bytes);
    account_leave(me, PROFILE_MALLOC, block, bytes);
    return block;
}

INTERPOSED void *calloc(size_t count, size_t each)
{
    struct thread_state *me = &thread_state;
    size_t bytes;
    if (__builtin_mul_overflow(count, each, &bytes))
        bytes = SIZE_MAX;
    if (UNLIKELY(!account_enter(me, PROFILE_CALLOC, bytes, NULL)))
        return account_late(me, PROFILE_CALLOC,
                            next_found() ? next.calloc(count, each) : next_early_block(bytes),
                            bytes);
    void *block = next.calloc(count, each);
    account_leave(me, PROFILE_CALLOC, block, bytes);
    return block;
}

INTERPOSED void *realloc(void *old, size_t bytes)
{
    struct thread_state *me = &thread_state;
    if (UNLIKELY(next_is_early(old)))
        return early_realloc(old, bytes);
    if (UNLIKELY(!account_enter(me, PROFILE_REALLOC, bytes, old)))
        return account_late(me, PROFILE_REALLOC,
                            next_found() ? next.realloc(old, bytes) : next_early_block(bytes),
                            bytes);
    void *block = next.realloc(old, bytes);
    account_leave(me, PROFILE_REALLOC, block, bytes);
    return block;
}

INTERPOSED void *reallocarray(void *old, size_t count, size_t each)
{
    struct thread_state *me = &thread_state;
    size_t bytes;
    if (__builtin_mul_overflow(count, each, &bytes))
        bytes = SIZE_MAX;
    if (UNLIKELY(!account_enter(me, PROFILE_REALLOCARRAY, bytes, old)))
        return account_late(me, PROFILE_REALLOCARRAY,
                            next_found() ? next.reallocarray(old, count, each) : NULL, bytes);
    void *block = next.reallocarray(old, count, each);
    account_leave(me, PROFILE_REALLOCARRAY, block, bytes);
    return block;
}

INTERPOSED int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    struct thread_state *me = &thread_state;
    if (UNLIKELY(!account_enter(me, PROFILE_POSIX_MEMALIGN, bytes, NULL))) {
        int result = next_found() ? next.posix_memalign(block, alignment, bytes) : ENOMEM;
        (void)account_late(me, PROFILE_POSIX_MEMALIGN, result == 0 ? *block : NULL, bytes);
        return result;
    }
    int error = next.posix_memalign(block, alignment, bytes);
    account_leave(me, PROFILE_POSIX_MEMALIGN, error == 0 ? *block : NULL, bytes);
    return error;
}

INTERPOSED void *aligned_alloc(size_t alignment, size_t bytes)
{
    struct thread_state *me = &thread_state;
    if (UNLIKELY(!account_enter(me, PROFILE_ALIGNED_ALLOC, bytes, NULL)))
        return account_late(me, PROFILE_ALIGNED_ALLOC,
                            next_found() ? next.aligned_alloc(alignment, bytes) : NULL, bytes);
    void *block = next.aligned_alloc(alignment, bytes);
    account_leave(me, PROFILE_ALIGNED_ALLOC, block, bytes);
    return block;
}

INTERPOSED void *memalign(size_t alignment, size_t bytes)
{
    struct thread_state *me = &thread_state;
    if (UNLIKELY(!account_enter(me, PROFILE_MEMALIGN, bytes, NULL)))
        return account_late(me, PROFILE_MEMALIGN,
                            next_found() ? next.memalign(alignment, bytes) : NULL, bytes);
    void *block = next.memalign(alignment, bytes);
    account_leave(me, PROFILE_MEMALIGN, block, bytes);
    return block;
}

INTERPOSED void *valloc(size_t bytes)
{
    struct thread_state *me = &thread_state;
    if (UNLIKELY(!account_enter(me, PROFILE_VALLOC, bytes, NULL)))
        return account_late(me, PROFILE_VALLOC, next_found() ? next.valloc(bytes) : NULL, bytes);
    void *block = next.valloc(bytes);
    account_leave(me, PROFILE_VALLOC, block, bytes);
    return block;
}

INTERPOSED void *pvalloc(size_t bytes)
{
    struct thread_state *me = &thread_state;
    if (UNLIKELY(!account_enter(me, PROFILE_PVALLOC, bytes, NULL)))
        return account_late(me, PROFILE_PVALLOC, next_found() ? next.pvalloc(bytes) : NULL, bytes);
    void *block = next.pvalloc(bytes);
    account_leave(me, PROFILE_PVALLOC, block, bytes);
    return block;
}

/* --- releasing and asking --------------------------------------------------------------------- */

INTERPOSED void free(void *block)
{
    struct thread_state *me = &thread_state;
    if (UNLIKELY(next_is_early(block)))
        return;
    if (UNLIKELY(!account_enter_release(me, PROFILE_FREE, block))) {
        if (next_found())
            next.free(block);
        account_late_release(me);
        return;
    }
    next.free(block);
    account_leave_release(me);
}

/* A function of C23. If the allocator does not have it, this calls the allocator's free(). */
INTERPOSED void free_sized(void *block, size_t bytes)
{
    struct thread_state *me = &thread_state;
    bool counted = account_enter_release(me, PROFILE_FREE, block);
    if (next_found() && next.free_sized != NULL)
        next.free_sized(block, bytes);
    else
        next.free(block);
    if (counted)
        account_leave_release(me);
    else
        account_late_release(me);
}

INTERPOSED void free_aligned_sized(void *block, size_t alignment, size_t bytes)
{
    struct thread_state *me = &thread_state;
    bool counted = account_enter_release(me, PROFILE_FREE, block);
    if (next_found() && next.free_aligned_sized != NULL)
        next.free_aligned_sized(block, alignment, bytes);
    else
        next.free(block);
    if (counted)
        account_leave_release(me);
    else
        account_late_release(me);
}

INTERPOSED size_t malloc_usable_size(void *block)
{
    struct thread_state *me = &thread_state;
    if (UNLIKELY(!next_found() || next_is_early(block)))
        return next_early_rest(block);
    if (UNLIKELY(!account_begin(me, PROFILE_USABLE_SIZE, 0))) {
        size_t usable = next.malloc_usable_size(block);
        account_late_release(me);
        return usable;
    }
    me->counts->released[PROFILE_USABLE_SIZE - PROFILE_ALLOCATING][account_phase()]++;
    me->guard = THREAD_INSIDE;
    size_t bytes = next.malloc_usable_size(block);
    me->guard = THREAD_OUTSIDE;
    return bytes;
}

/* If the allocator has no malloc_trim(), this calls libc's function, which trims libc's own
 * heap. */
INTERPOSED int malloc_trim(size_t keep)
{
    struct thread_state *me = &thread_state;
    if (UNLIKELY(!next_found() || next.malloc_trim == NULL))
        return 0;
    if (UNLIKELY(!account_begin(me, PROFILE_TRIM, 0))) {
        int result = next.malloc_trim(keep);
        account_late_release(me);
        return result;
    }
    me->counts->released[PROFILE_TRIM - PROFILE_ALLOCATING][account_phase()]++;
    me->guard = THREAD_INSIDE;
    int released = next.malloc_trim(keep);
    me->guard = THREAD_OUTSIDE;
    return released;
}
