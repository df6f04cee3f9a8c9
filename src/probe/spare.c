#include "probe/spare.h"

#include "base/clock.h"
#include "probe/direct_syscall.h"
#include "record/spare.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* The window of this image, or NULL. Other processes write to it at the same time. */
static struct spare_window *window;

/* The inherited descriptor. The program may close it, or give its number to another file, so it is
 * checked by device and inode before each use. */
static struct {
    int fd;
    uint64_t device;
    uint64_t inode;
    uint64_t windows; /* number of windows; 0: there is no spare memory */
} memory = {.fd = -1};

static uint64_t round_up(uint64_t bytes)
{
    uint64_t page = getauxval(AT_PAGESZ);
    return (bytes + page - 1) / page * page;
}

static bool descriptor_is_ours(void)
{
    struct stat status;
    return memory.fd >= 0 && !direct_failed(direct_call3(SYS_fstat, memory.fd, (long)&status, 0)) &&
           (uint64_t)status.st_dev == memory.device && (uint64_t)status.st_ino == memory.inode;
}

/* Maps a window, which is used from now on. The window before it stays mapped, because records lie
 * in it. The process number selects the window, so that most processes have one of their own. */
static void open_window(void)
{
    if (memory.windows == 0 || direct_forbidden || !descriptor_is_ours())
        return;
    uint64_t number = (uint64_t)direct_call0(SYS_getpid) % memory.windows;
    long mapped = direct_call(SYS_mmap, 0, SPARE_WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                              memory.fd, (long)(number * SPARE_WINDOW_BYTES));
    if (direct_failed(mapped))
        return;
    /* A core dump would otherwise contain the whole window. */
    direct_call3(SYS_madvise, mapped, SPARE_WINDOW_BYTES, MADV_DONTDUMP);
    window = (struct spare_window *)mapped;
}

void spare_open(const char *option)
{
    static bool opened;
    if (opened)
        return;
    opened = true;
    if (option == NULL || getauxval(AT_SECURE) != 0)
        return;
    char *end;
    long fd = strtol(option, &end, 10);
    memory.device = *end == ':' ? strtoull(end + 1, &end, 10) : 0;
    memory.inode = *end == ':' ? strtoull(end + 1, &end, 10) : 0;
    memory.windows = *end == ':' ? strtoull(end + 1, &end, 10) : 0;
    memory.fd = (int)fd;
    open_window();
}

/* Takes bytes of the window. Returns NULL if there is no room. Writes the magic of the window each
 * time, because no process knows whether it is the first user of the window. */
static void *take(uint64_t bytes)
{
    if (window == NULL)
        return NULL;
    bytes = round_up(bytes);
    uint64_t begin = SPARE_HEAD_BYTES + __atomic_fetch_add(&window->bytes, bytes, __ATOMIC_RELAXED);
    if (begin + bytes > SPARE_WINDOW_BYTES)
        return NULL;
    memcpy(window->magic, SPARE_MAGIC, sizeof window->magic);
    return (char *)window + begin;
}

void *spare_begin(uint64_t bytes)
{
    for (int tries = 0; tries < 2; tries++) {
        struct spare_window *before = window;
        void *record = take(bytes);
        uint64_t entry = record != NULL ? __atomic_fetch_add(&window->records, 1, __ATOMIC_RELAXED)
                                        : SPARE_RECORDS;
        if (entry < SPARE_RECORDS) {
            window->record_offsets[entry] = (uint64_t)((char *)record - (char *)window);
            return record;
        }
        open_window();
        if (window == before)
            break;
    }
    return NULL;
}

void *spare_extend(uint64_t bytes)
{
    return take(bytes);
}

/* Copies the last part of a path. */
static void copy_name(char to[SPARE_NAME_BYTES], const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    memcpy(to, name, strnlen(name, SPARE_NAME_BYTES - 1));
}

bool spare_note_unrecorded(uint32_t process, uint32_t error, const char *program)
{
    if (window == NULL)
        return false;
    memcpy(window->magic, SPARE_MAGIC, sizeof window->magic);
    uint64_t entry = __atomic_fetch_add(&window->unrecorded_count, 1, __ATOMIC_RELAXED);
    if (entry >= SPARE_UNRECORDED)
        return true;
    struct spare_unrecorded *place = &window->unrecorded[entry];
    copy_name(place->program, program);
    place->error = error;
    place->process = process;
    return true;
}

bool spare_is_inherited(void)
{
    long flags = direct_forbidden ? -1 : direct_call3(SYS_fcntl, memory.fd, F_GETFD, 0);
    return !direct_failed(flags) && (flags & FD_CLOEXEC) == 0 && descriptor_is_ours();
}

void spare_note_executed(uint32_t process, uint32_t error, const char *kind, const char *program)
{
    if (window == NULL)
        return;
    memcpy(window->magic, SPARE_MAGIC, sizeof window->magic);
    uint64_t entry = __atomic_fetch_add(&window->executed_count, 1, __ATOMIC_RELAXED);
    if (entry >= SPARE_EXECUTED)
        return;
    struct spare_executed *place = &window->executed[entry];
    copy_name(place->program, program);
    memcpy(place->kind, kind, strnlen(kind, sizeof place->kind - 1));
    place->error = error;
    place->ns = clock_now_ns();
    __atomic_store_n(&place->process, process, __ATOMIC_RELEASE);
}

void spare_forget_executed(uint32_t process)
{
    uint64_t entries =
        window != NULL ? __atomic_load_n(&window->executed_count, __ATOMIC_RELAXED) : 0;
    for (uint64_t i = entries < SPARE_EXECUTED ? entries : SPARE_EXECUTED; i-- > 0;) {
        if (window->executed[i].process != process)
            continue;
        window->executed[i].process = 0;
        return;
    }
}
