/* interpose.c - the allocating functions of C, POSIX and glibc, and C++'s operators. Each function
 * calls the allocator's function of the same name through path_call().
 *
 * An allocator may call a public function within an operation. Such a nested call is a part of the
 * outer operation, and has no path of its own. An operator of the C++ runtime is not a function of
 * the allocator: it calls malloc, and that call is the operation.
 */
#include "instructions/blocks.h"
#include "instructions/history.h"
#include "instructions/paths.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define INTERPOSED __attribute__((visibility("default")))

enum function {
    MALLOC,
    CALLOC,
    REALLOC,
    REALLOCARRAY,
    ALIGNED_ALLOC,
    POSIX_MEMALIGN,
    MEMALIGN,
    VALLOC,
    PVALLOC,
    FREE,
    FREE_SIZED,
    FREE_ALIGNED_SIZED,
    NEW,
    NEW_NOTHROW,
    NEW_ALIGNED,
    NEW_ALIGNED_NOTHROW,
    ARRAY_NEW,
    ARRAY_NEW_NOTHROW,
    ARRAY_NEW_ALIGNED,
    ARRAY_NEW_ALIGNED_NOTHROW,
    DELETE,
    DELETE_SIZED,
    DELETE_NOTHROW,
    DELETE_ALIGNED,
    DELETE_SIZED_ALIGNED,
    DELETE_ALIGNED_NOTHROW,
    ARRAY_DELETE,
    ARRAY_DELETE_SIZED,
    ARRAY_DELETE_NOTHROW,
    ARRAY_DELETE_ALIGNED,
    ARRAY_DELETE_SIZED_ALIGNED,
    ARRAY_DELETE_ALIGNED_NOTHROW,
    FUNCTIONS
}; /* in the order of `real` */

static struct {
    const char *name;
    path_function *call;
    bool is_foreign; /* the function is not the allocator's */
} real[FUNCTIONS] = {
    {.name = "malloc"},
    {.name = "calloc"},
    {.name = "realloc"},
    {.name = "reallocarray"},
    {.name = "aligned_alloc"},
    {.name = "posix_memalign"},
    {.name = "memalign"},
    {.name = "valloc"},
    {.name = "pvalloc"},
    {.name = "free"},
    {.name = "free_sized"},
    {.name = "free_aligned_sized"},
    {.name = "_Znwm"},
    {.name = "_ZnwmRKSt9nothrow_t"},
    {.name = "_ZnwmSt11align_val_t"},
    {.name = "_ZnwmSt11align_val_tRKSt9nothrow_t"},
    {.name = "_Znam"},
    {.name = "_ZnamRKSt9nothrow_t"},
    {.name = "_ZnamSt11align_val_t"},
    {.name = "_ZnamSt11align_val_tRKSt9nothrow_t"},
    {.name = "_ZdlPv"},
    {.name = "_ZdlPvm"},
    {.name = "_ZdlPvRKSt9nothrow_t"},
    {.name = "_ZdlPvSt11align_val_t"},
    {.name = "_ZdlPvmSt11align_val_t"},
    {.name = "_ZdlPvSt11align_val_tRKSt9nothrow_t"},
    {.name = "_ZdaPv"},
    {.name = "_ZdaPvm"},
    {.name = "_ZdaPvRKSt9nothrow_t"},
    {.name = "_ZdaPvSt11align_val_t"},
    {.name = "_ZdaPvmSt11align_val_t"},
    {.name = "_ZdaPvSt11align_val_tRKSt9nothrow_t"},
};

static __thread struct history_thread mine;
/* `operation` is the address of the frame in which the thread's operation runs, or 0.
 * `operation_returns` is the return address in this frame. */
static __thread uintptr_t operation;
static __thread uintptr_t operation_returns;
static __thread bool searches; /* this library calls libc, which may allocate */

/* --- the allocator's functions ---------------------------------------------------------------- */

/* Blocks for old libcs whose dlsym() allocates while malloc is not known. They are never freed. */
static _Alignas(16) char early[64 << 10];
static size_t early_used;

static void *early_block(size_t bytes)
{
    size_t start = early_used;
    if (bytes > sizeof early - start)
        return NULL;
    early_used += (bytes + 15) & ~(size_t)15;
    return early + start;
}

static bool is_early(const void *block)
{
    return (uintptr_t)block - (uintptr_t)early < sizeof early;
}

static void *object_of(void *address)
{
    Dl_info about;
    return dladdr(address, &about) != 0 ? about.dli_fbase : NULL;
}

/* Looks for an operator in the C++ runtime that a plugin has loaded, and then in the library of the
 * caller, which may have a runtime built in. */
static void *find_operator(const char *name, void *caller)
{
    Dl_info about;
    void *runtime = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *found = runtime != NULL ? dlsym(runtime, name) : NULL;
    if (found != NULL || dladdr(caller, &about) == 0)
        return found;
    void *object = dlopen(about.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    return object != NULL ? dlsym(object, name) : NULL;
}

static void find(enum function function, void *caller)
{
    bool before = searches;
    searches = true;
    void *found = dlsym(RTLD_NEXT, real[function].name);
    if (found == NULL && function >= NEW)
        found = find_operator(real[function].name, caller);
    real[function].is_foreign =
        found != NULL && function >= NEW && object_of(found) != object_of(real[MALLOC].call);
    real[function].call = (path_function *)(uintptr_t)found;
    searches = before;
}

/* Returns the allocator's function, or NULL if it has none. */
static path_function *function_of(enum function function, void *caller)
{
    if (UNLIKELY(real[function].call == NULL))
        find(function, caller);
    return real[function].call;
}

static void before_fork(void)
{
    history_before_fork();
}

static void begin(void);

static void in_child(void)
{
    searches = true;
    history_forked(&mine);
    begin();
    searches = false;
}

static void begin(void)
{
    Dl_info about = {0};
    (void)dladdr((void *)(uintptr_t)real[MALLOC].call, &about);
    history_begin(about.dli_fname != NULL ? about.dli_fname : "");
}

/* Finds malloc and opens the account, once. Returns false for a nested call, which comes while the
 * first call still does this. */
static bool is_ready(void)
{
    static bool begun, ready;
    if (LIKELY(ready))
        return true;
    if (begun)
        return false;
    begun = true;
    find(MALLOC, NULL);
    find(FREE, NULL);
    find(CALLOC, NULL);
    find(REALLOC, NULL);
    begin();
    ready = true;
    return true;
}

__attribute__((constructor)) static void prepare(void)
{
    (void)is_ready();
    searches = true;
    (void)pthread_atfork(before_fork, NULL, in_child);
    searches = false;
}

/* --- operations ------------------------------------------------------------------------------- */

#define FRAME ((uintptr_t)__builtin_frame_address(0))

static uintptr_t return_address(uintptr_t frame)
{
    return ((const uintptr_t *)frame)[1];
}

/* Returns true if the call with the frame address `frame` is a part of another operation, or of a
 * search of this library (`searches`). An exception or a long jump may have left the last
 * operation. In that case its frame does not lie above `frame`, or later calls have overwritten the
 * return address in its frame. */
static bool is_within(uintptr_t frame)
{
    if (operation == 0 || searches)
        return searches;
    if (frame < operation && return_address(operation) == operation_returns) {
        history_count_nested();
        return true;
    }
    operation = 0;
    return false;
}

static void enter(uintptr_t frame)
{
    operation = frame;
    operation_returns = return_address(frame);
}

static void leave(void)
{
    operation = 0;
}

/* Allocates by a function that returns the block, or that stores it in `*where`. */
static uintptr_t allocate(enum function function, size_t bytes, uintptr_t first, uintptr_t second,
                          uintptr_t third, void **where, void *caller)
{
    if (UNLIKELY(!is_ready())) {
        void *block = early_block(bytes);
        return where == NULL ? (uintptr_t)block : ENOMEM;
    }
    path_function *call = function_of(function, caller);
    if (UNLIKELY(call == NULL)) {
        errno = ENOMEM;
        return where == NULL ? 0 : ENOMEM;
    }
    if (is_within(FRAME) || real[function].is_foreign)
        return call(first, second, third);
    enter(FRAME);
    enum path said = history_next(&mine);
    uintptr_t result = path_call(said, path_group(bytes), call, first, second, third);
    leave();
    int before = errno;
    void *block = where == NULL ? (void *)result : result == 0 ? *where : NULL;
    history_tell(&mine, said, blocks_add(block, bytes));
    errno = before;
    return result;
}

static uintptr_t reallocate(enum function function, size_t bytes, uintptr_t old, uintptr_t second,
                            uintptr_t third)
{
    if (old == 0)
        return allocate(function, bytes, old, second, third, NULL, NULL);
    if (UNLIKELY(is_early((void *)old))) {
        size_t rest = (size_t)(early + sizeof early - (char *)old);
        void *block = malloc(bytes);
        return block == NULL ? 0
                             : (uintptr_t)memcpy(block, (void *)old, bytes < rest ? bytes : rest);
    }
    path_function *call = function_of(function, NULL);
    if (UNLIKELY(call == NULL))
        return 0;
    if (is_within(FRAME))
        return call(old, second, third);
    enter(FRAME);
    uintptr_t result = path_call(PATH_REALLOC, path_group(bytes), call, old, second, third);
    leave();
    int before = errno;
    (void)blocks_add((void *)result, bytes);
    errno = before;
    return result;
}

static void release(enum function function, void *block, uintptr_t second, uintptr_t third,
                    void *caller)
{
    if (UNLIKELY(is_early(block)) || UNLIKELY(!is_ready()))
        return;
    path_function *call = function_of(function, caller);
    bool is_foreign = real[function].is_foreign;
    if (call == NULL) { /* free_sized() of C23 or similar; few allocators have it */
        call = real[FREE].call;
        is_foreign = false;
    }
    if (is_within(FRAME) || block == NULL || is_foreign) {
        call((uintptr_t)block, second, third);
        return;
    }
    enter(FRAME);
    path_call(PATH_FREE, blocks_group(block), call, (uintptr_t)block, second, third);
    leave();
}

static size_t product(size_t count, size_t each)
{
    size_t bytes;
    return __builtin_mul_overflow(count, each, &bytes) ? SIZE_MAX : bytes;
}

/* --- C, POSIX and glibc ----------------------------------------------------------------------- */

INTERPOSED void *malloc(size_t bytes)
{
    return (void *)allocate(MALLOC, bytes, bytes, 0, 0, NULL, NULL);
}

INTERPOSED void *calloc(size_t count, size_t each)
{
    return (void *)allocate(CALLOC, product(count, each), count, each, 0, NULL, NULL);
}

INTERPOSED void *realloc(void *old, size_t bytes)
{
    return (void *)reallocate(REALLOC, bytes, (uintptr_t)old, bytes, 0);
}

INTERPOSED void *reallocarray(void *old, size_t count, size_t each)
{
    return (void *)reallocate(REALLOCARRAY, product(count, each), (uintptr_t)old, count, each);
}

INTERPOSED void *aligned_alloc(size_t alignment, size_t bytes)
{
    return (void *)allocate(ALIGNED_ALLOC, bytes, alignment, bytes, 0, NULL, NULL);
}

INTERPOSED int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    return (int)allocate(POSIX_MEMALIGN, bytes, (uintptr_t)block, alignment, bytes, block, NULL);
}

INTERPOSED void *memalign(size_t alignment, size_t bytes)
{
    return (void *)allocate(MEMALIGN, bytes, alignment, bytes, 0, NULL, NULL);
}

INTERPOSED void *valloc(size_t bytes)
{
    return (void *)allocate(VALLOC, bytes, bytes, 0, 0, NULL, NULL);
}

INTERPOSED void *pvalloc(size_t bytes)
{
    return (void *)allocate(PVALLOC, bytes, bytes, 0, 0, NULL, NULL);
}

INTERPOSED void free(void *block)
{
    release(FREE, block, 0, 0, NULL);
}

INTERPOSED void free_sized(void *block, size_t bytes)
{
    release(FREE_SIZED, block, bytes, 0, NULL);
}

INTERPOSED void free_aligned_sized(void *block, size_t alignment, size_t bytes)
{
    release(FREE_ALIGNED_SIZED, block, alignment, bytes, NULL);
}

/* --- C++ -------------------------------------------------------------------------------------- */

#define CALLER __builtin_return_address(0)

#define NEW_FORMS(plain, function)                                                                 \
    INTERPOSED void *plain(size_t bytes)                                                           \
    {                                                                                              \
        return (void *)allocate(function, bytes, bytes, 0, 0, NULL, CALLER);                       \
    }                                                                                              \
    INTERPOSED void *plain##RKSt9nothrow_t(size_t bytes, uintptr_t nothrow)                        \
    {                                                                                              \
        return (void *)allocate(function##_NOTHROW, bytes, bytes, nothrow, 0, NULL, CALLER);       \
    }                                                                                              \
    INTERPOSED void *plain##St11align_val_t(size_t bytes, uintptr_t alignment)                     \
    {                                                                                              \
        return (void *)allocate(function##_ALIGNED, bytes, bytes, alignment, 0, NULL, CALLER);     \
    }                                                                                              \
    INTERPOSED void *plain##St11align_val_tRKSt9nothrow_t(size_t bytes, uintptr_t alignment,       \
                                                          uintptr_t nothrow)                       \
    {                                                                                              \
        return (void *)allocate(function##_ALIGNED_NOTHROW, bytes, bytes, alignment, nothrow,      \
                                NULL, CALLER);                                                     \
    }

#define DELETE_FORMS(plain, function)                                                              \
    INTERPOSED void plain(void *block)                                                             \
    {                                                                                              \
        release(function, block, 0, 0, CALLER);                                                    \
    }                                                                                              \
    INTERPOSED void plain##m(void *block, size_t bytes)                                            \
    {                                                                                              \
        release(function##_SIZED, block, bytes, 0, CALLER);                                        \
    }                                                                                              \
    INTERPOSED void plain##RKSt9nothrow_t(void *block, uintptr_t nothrow)                          \
    {                                                                                              \
        release(function##_NOTHROW, block, nothrow, 0, CALLER);                                    \
    }                                                                                              \
    INTERPOSED void plain##St11align_val_t(void *block, uintptr_t alignment)                       \
    {                                                                                              \
        release(function##_ALIGNED, block, alignment, 0, CALLER);                                  \
    }                                                                                              \
    INTERPOSED void plain##mSt11align_val_t(void *block, size_t bytes, uintptr_t alignment)        \
    {                                                                                              \
        release(function##_SIZED_ALIGNED, block, bytes, alignment, CALLER);                        \
    }                                                                                              \
    INTERPOSED void plain##St11align_val_tRKSt9nothrow_t(void *block, uintptr_t alignment,         \
                                                         uintptr_t nothrow)                        \
    {                                                                                              \
        release(function##_ALIGNED_NOTHROW, block, alignment, nothrow, CALLER);                    \
    }

NEW_FORMS(_Znwm, NEW)
NEW_FORMS(_Znam, ARRAY_NEW)
DELETE_FORMS(_ZdlPv, DELETE)
DELETE_FORMS(_ZdaPv, ARRAY_DELETE)
