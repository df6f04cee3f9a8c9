/* operators.c - C++'s operators new and delete, under their names in the Itanium ABI. Each operator
 * counts the operation (account.h) and calls the allocator's operator of the same name (next.h).
 *
 * If operator new throws, the exception passes through these functions.
 * __cxa_allocate_exception() in interpose_nonallocating.c counts the operation as failed and ends
 * it. A nothrow operator may catch such an exception and return NULL; its operation has then ended
 * before it returns. If a new handler throws and catches an exception and then finds memory, the
 * operation is counted as failed, although it returns a block.
 *
 * An operator may be unknown at first, because a plugin may load the C++ runtime later. Each call
 * then searches for the operator again until it is found.
 */
#include "probe/account.h"
#include "probe/next.h"

#define INTERPOSED __attribute__((visibility("default")))

enum { PLAIN, ARRAY };

/* Yields a member of struct next_operators. If the member is not known, searches for it first. */
#define NEXT(kind, type, member)                                                                   \
    ((type *)((kind) == ARRAY                                                                      \
                  ? operator_of(&next.array.member, ARRAY, __builtin_return_address(0))            \
                  : operator_of(&next.plain.member, PLAIN, __builtin_return_address(0))))

static inline void *operator_of(void *place, bool array, const void *caller)
{
    void *found = *(void **)place;
    if (LIKELY(found != NULL))
        return found;
    (void)next_found();
    void **first = (void **)(array ? &next.array : &next.plain);
    size_t number = (size_t)((void **)place - first);
    return *(void **)place != NULL ? *(void **)place : next_operator(array, number, caller);
}

/* Returns true if the operation ended with an exception that a nothrow operator caught. */
static inline bool caught(const struct thread_state *me, const void *block)
{
    return UNLIKELY(block == NULL) && me->guard == THREAD_OUTSIDE;
}

/* Takes the place of caught() for an operator that throws and never returns NULL. */
static inline bool never(const struct thread_state *me, const void *block)
{
    (void)me;
    (void)block;
    return false;
}

#define NEW_FORM(name, kind, function, type, member, has_ended, PARAMETERS, ARGUMENTS)             \
    INTERPOSED void *name PARAMETERS                                                               \
    {                                                                                              \
        struct thread_state *me = &thread_state;                                                   \
        type *real = NEXT(kind, type, member);                                                     \
        if (UNLIKELY(!account_enter(me, function, bytes, NULL)))                                   \
            return account_late(me, function, real ARGUMENTS, bytes);                              \
        void *block = real ARGUMENTS;                                                              \
        if (has_ended(me, block))                                                                  \
            return NULL;                                                                           \
        account_leave(me, function, block, bytes);                                                 \
        return block;                                                                              \
    }

#define DELETE_FORM(name, kind, function, type, member, PARAMETERS, ARGUMENTS)                     \
    INTERPOSED void name PARAMETERS                                                                \
    {                                                                                              \
        struct thread_state *me = &thread_state;                                                   \
        type *real = NEXT(kind, type, member);                                                     \
        if (UNLIKELY(!account_enter_release(me, function, block))) {                               \
            real ARGUMENTS;                                                                        \
            account_late_release(me);                                                              \
            return;                                                                                \
        }                                                                                          \
        real ARGUMENTS;                                                                            \
        account_leave_release(me);                                                                 \
    }

#define OPERATORS(n, d, kind, NEW, DELETE)                                                         \
    NEW_FORM(n, kind, NEW, next_new, new, never, (size_t bytes), (bytes))                          \
    NEW_FORM(n##RKSt9nothrow_t, kind, NEW, next_new_nothrow, new_nothrow, caught,                  \
             (size_t bytes, const void *nothrow), (bytes, nothrow))                                \
    NEW_FORM(n##St11align_val_t, kind, NEW, next_new_aligned, new_aligned, never,                  \
             (size_t bytes, size_t alignment), (bytes, alignment))                                 \
    NEW_FORM(n##St11align_val_tRKSt9nothrow_t, kind, NEW, next_new_aligned_nothrow,                \
             new_aligned_nothrow, caught, (size_t bytes, size_t alignment, const void *nothrow),   \
             (bytes, alignment, nothrow))                                                          \
    DELETE_FORM(d, kind, DELETE, next_delete, delete, (void *block), (block))                      \
    DELETE_FORM(d##m, kind, DELETE, next_delete_sized, delete_sized, (void *block, size_t bytes),  \
                (block, bytes))                                                                    \
    DELETE_FORM(d##RKSt9nothrow_t, kind, DELETE, next_delete_nothrow, delete_nothrow,              \
                (void *block, const void *nothrow), (block, nothrow))                              \
    DELETE_FORM(d##St11align_val_t, kind, DELETE, next_delete_aligned, delete_aligned,             \
                (void *block, size_t alignment), (block, alignment))                               \
    DELETE_FORM(d##mSt11align_val_t, kind, DELETE, next_delete_sized_aligned,                      \
                delete_sized_aligned, (void *block, size_t bytes, size_t alignment),               \
                (block, bytes, alignment))                                                         \
    DELETE_FORM(d##St11align_val_tRKSt9nothrow_t, kind, DELETE, next_delete_aligned_nothrow,       \
                delete_aligned_nothrow, (void *block, size_t alignment, const void *nothrow),      \
                (block, alignment, nothrow))

OPERATORS(_Znwm, _ZdlPv, PLAIN, PROFILE_NEW, PROFILE_DELETE)
OPERATORS(_Znam, _ZdaPv, ARRAY, PROFILE_NEW_ARRAY, PROFILE_DELETE_ARRAY)
