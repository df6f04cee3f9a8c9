#include "probe/spare.h"

#include "probe/direct_syscall.h"
#include "record/spare.h"

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
    uint64_t windows; /* their number; 0: there is no memory */
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

/* Maps a window in place of the present one, whose memory stays mapped. The window has the number
 * of the calling process, so that most of them have one of their own. */
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

/* Takes bytes of the window. Returns NULL if it has no room. The first user writes the magic. */
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

bool spare_note_unrecorded(uint32_t process, uint32_t error, const char *program)
{
    if (window == NULL)
        return false;
    memcpy(window->magic, SPARE_MAGIC, sizeof window->magic);
    uint64_t entry = __atomic_fetch_add(&window->unrecorded_count, 1, __ATOMIC_RELAXED);
    if (entry >= SPARE_UNRECORDED)
        return true;
    struct spare_unrecorded *place = &window->unrecorded[entry];
    const char *slash = strrchr(program, '/');
    const char *name = slash != NULL ? slash + 1 : program;
    size_t length = strnlen(name, sizeof place->program - 1);
    memcpy(place->program, name, length);
    place->error = error;
    place->process = process;
    return true;
}
