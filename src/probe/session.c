#include "probe/session.h"

#include "base/loaded.h"
#include "base/text.h"
#include "base/ticks.h"
#include "probe/futex_lock.h"
#include "probe/handed_out.h"
#include "probe/lock_table.h"
#include "probe/next.h"
#include "probe/own_memory.h"
#include "probe/owners.h"
#include "probe/residence.h"
#include "probe/spare.h"
#include "probe/thread_state.h"
#include "probe/watched.h"

#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

struct session session;

/* UNRECORDED: there is neither a file nor spare memory for this process. */
enum { NOT_BEGUN, BEGINNING, ON, OFF, UNRECORDED };

static _Atomic int state;
static bool is_child;
static const char *library; /* path of the probe, as the loader has it */
static char path[PATH_MAX];
static char program[PROFILE_PATH_BYTES];
static bool in_spare; /* the record is in spare memory (spare.h), not a file */

/* Protects the file's size, the lists of structs profile_thread, and the list of moments. */
static struct futex_lock lock;
static uint64_t file_bytes;
/* Length of the first mapping of the file. The mapping is longer than the first piece, so that the
 * process can use later pieces even when it may no longer open the file. Later pieces that do not
 * fit have mappings of their own. Only the first ready_bytes of the mapping have disk blocks. Both
 * are 0 in the spare memory. */
static uint64_t mapped_bytes;
static uint64_t ready_bytes;
static struct profile_thread *chunks[PROFILE_CHUNKS];
static uint32_t chunk_count;
/* In the last chunk, the index of the first struct profile_thread that no thread has used. This
 * struct and all later ones have never been written. */
static uint64_t unused;
/* Head of the list of structs profile_thread that ended threads have left: 1 + (index << 8 |
 * chunk). 0 means that the list is empty. */
static uint64_t vacant;

static _Atomic bool looking;  /* a thread is in residence_look() */
static uint64_t looks_ns;     /* total time spent in residence_look() */
static uint64_t looked_ns;    /* process age at the last look */
static uint64_t looked_bytes; /* most resident bytes at any look */

/* The peak of getrusage() when the process began. exec keeps the peak of the program before, which
 * after vfork() is the peak of a perhaps large parent. */
static uint64_t peak_before;

enum { MOMENT_NS = 4 * 1000 * 1000, GAP = 256, CLOSELY_BYTES = 10 << 20 };

/* Length of the file's first mapping, which has room for 248 threads. */
enum { AHEAD_BYTES = 512 << 10 };

/* Layout of the first piece of the file. Each later piece is one chunk of structs
 * profile_thread. */
struct first {
    struct profile_head head;
    struct profile_samples samples;
    _Alignas(64) struct profile_thread threads[PROFILE_CHUNK_THREADS];
};

static uint64_t round_up(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

static uint64_t page_bytes(void)
{
    return getauxval(AT_PAGESZ);
}

/* Returns the kernel's number of the calling thread. If the probe may make no system calls, the
 * function computes this number from the number of the thread's CPU clock, which libc knows. */
static uint32_t own_thread(void)
{
    clockid_t clock;
    if (!direct_forbidden || pthread_getcpuclockid(pthread_self(), &clock) != 0)
        return (uint32_t)direct_call0(SYS_gettid);
    return ~(uint32_t)(clock >> 3);
}

/* Returns the number of the process. If the probe may make no system calls, only the child of a
 * fork calls this. The number of its only thread is also the number of the process. */
static uint32_t own_process(void)
{
    return direct_forbidden ? own_thread() : (uint32_t)direct_call0(SYS_getpid);
}

/* --- the file --------------------------------------------------------------------------------- */

/* Returns false if a file of `bytes` bytes would be larger than RLIMIT_FSIZE permits. Writing to
 * such a file would raise SIGXFSZ in the program. */
static bool may_grow_to(uint64_t bytes)
{
    struct rlimit limit = {.rlim_cur = 0};
    direct_call(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, (long)&limit, 0, 0);
    return bytes <= limit.rlim_cur;
}

/* Reserves disk blocks for [from, to) of the file. Without reserved blocks, the first write to a
 * mapped page would kill the program with SIGBUS when the disk is full. Returns 0, or -errno if
 * there is no room. */
static long reserve(int fd, uint64_t from, uint64_t to)
{
    if (!may_grow_to(to))
        return -EFBIG;
    long result = direct_call(SYS_fallocate, fd, 0, (long)from, (long)(to - from), 0, 0);
    if (result != -EOPNOTSUPP && result != -ENOSYS)
        return result;
    static const char zeroes[4096];
    for (uint64_t at = from; at < to;) {
        uint64_t bytes = to - at < sizeof zeroes ? to - at : sizeof zeroes;
        long written = direct_call(SYS_pwrite64, fd, (long)zeroes, (long)bytes, (long)at, 0, 0);
        if (written <= 0)
            return written == 0 ? -ENOSPC : written;
        at += (uint64_t)written;
    }
    return 0;
}

long session_reserve(int fd, uint64_t from, uint64_t to)
{
    return reserve(fd, from, to);
}

/* Makes the file longer by `bytes`, rounded up to OS pages, and maps the new piece. Returns its
 * address, or -errno. */
static long extend(int flags, uint64_t bytes)
{
    if (direct_forbidden)
        return -EPERM;
    long fd = direct_call(SYS_openat, AT_FDCWD, (long)path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags,
                          0600, 0, 0);
    if (direct_failed(fd))
        return fd;
    bytes = round_up(bytes, page_bytes());
    long start = reserve((int)fd, file_bytes, file_bytes + bytes);
    uint64_t mapped = bytes;
    if (start == 0 && file_bytes == 0 && may_grow_to(AHEAD_BYTES) &&
        !direct_failed(direct_call3(SYS_ftruncate, fd, AHEAD_BYTES, 0)))
        mapped = AHEAD_BYTES;
    if (start == 0)
        start = direct_call(SYS_mmap, 0, (long)mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                            (long)file_bytes);
    direct_call3(SYS_close, fd, 0, 0);
    if (!direct_failed(start)) {
        if (file_bytes == 0) {
            /* Without this, the first page fault would read ahead in the file, which takes
             * 100 us. */
            direct_call3(SYS_madvise, start, (long)mapped, MADV_RANDOM);
            mapped_bytes = mapped;
            ready_bytes = bytes;
        }
        file_bytes += bytes;
        own_memory_add((void *)start, bytes);
    }
    return start;
}

/* Reserves disk blocks for the first `bytes` bytes of the first mapping, without opening the file.
 * Returns false if the mapping is shorter, if the disk has no room, or if Linux is older than
 * 5.14. */
static bool make_ready(uint64_t bytes)
{
    if (bytes <= ready_bytes)
        return true;
    if (bytes > mapped_bytes || direct_forbidden ||
        direct_failed(direct_call3(SYS_madvise, (long)((char *)session.head + ready_bytes),
                                   (long)(bytes - ready_bytes), 23 /* MADV_POPULATE_WRITE */)))
        return false;
    ready_bytes = bytes;
    return true;
}

/* Creates the file, or a record in the spare memory if the process can make no file. Returns NULL
 * if both fail. The reason is then noted in the spare memory. */
static struct first *create(void)
{
    file_bytes = mapped_bytes = ready_bytes = 0;
    in_spare = false;
    long made = extend(O_CREAT | O_EXCL, sizeof(struct first));
    if (!direct_failed(made))
        return (struct first *)made;
    struct first *spare = spare_begin(sizeof *spare);
    in_spare = spare != NULL;
    if (in_spare)
        file_bytes = round_up(sizeof *spare, page_bytes());
    if (in_spare)
        own_memory_add(spare, file_bytes);
    /* If the disk is full, an empty file may exist. It is removed only if the process is recorded
     * or noted in the spare memory, because otherwise it is the only sign of this process. */
    if ((in_spare || spare_note_unrecorded(own_process(), (uint32_t)-made, program)) &&
        !direct_forbidden)
        direct_call3(SYS_unlinkat, AT_FDCWD, (long)path, 0);
    return spare;
}

/* --- begin ------------------------------------------------------------------------------------ */

const char *session_option(const char *name)
{
    size_t length = strlen(name);
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++)
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
            return *entry + length + 1;
    return NULL;
}

bool session_option_is(const char *name, const char *value)
{
    const char *given = session_option(name);
    return given != NULL && strcmp(given, value) == 0;
}

static bool name_file(const char *folder)
{
    struct text text = text_over(path, sizeof path);
    text_add(&text, folder);
    text_add_char(&text, '/');
    text_add_unsigned(&text, own_process());
    text_add_char(&text, '.');
    text_add_unsigned(&text, clock_now_ns());
    text_add(&text, ".probe");
    return !text.truncated;
}

/* Returns the median difference of two clock readings with nothing between them. If `alone` is
 * true, the clock is read with fences. */
static uint64_t pair_ticks(bool alone)
{
    enum { TRIES = 31 };
    uint64_t sorted[TRIES];
    for (size_t i = 0; i < TRIES; i++) {
        uint64_t before = alone ? ticks_before() : ticks_now();
        uint64_t taken = (alone ? ticks_after() : ticks_now()) - before;
        size_t place = i;
        for (; place > 0 && sorted[place - 1] > taken; place--)
            sorted[place] = sorted[place - 1];
        sorted[place] = taken;
    }
    return sorted[TRIES / 2];
}

static void copy_path(char to[PROFILE_PATH_BYTES], const char *from)
{
    size_t length = strnlen(from, PROFILE_PATH_BYTES - 1);
    memcpy(to, from, length);
    to[length] = '\0';
}

/* Path of the library that owns malloc. Empty if the program itself owns malloc, or if the owner is
 * not known. */
static char allocator[PROFILE_PATH_BYTES];

/* For dl_iterate_phdr(): finds the path of this library. */
static int find_library(struct dl_phdr_info *object, size_t size, void *nothing)
{
    (void)size;
    (void)nothing;
    if (!loaded_contains(object, (uintptr_t)&session))
        return 0;
    library = object->dlpi_name;
    return 1;
}

/* For dl_iterate_phdr(): finds the object that malloc lies in. dladdr() would give the same answer,
 * but it also searches every symbol of the object. In a short process that would be a tenth of the
 * probe's cost. */
static int find_allocator(struct dl_phdr_info *object, size_t size, void *nothing)
{
    (void)size;
    (void)nothing;
    if (!loaded_contains(object, (uintptr_t)next.malloc))
        return 0;
    session.measures = loaded_contains(object, (uintptr_t)next.malloc_usable_size);
    session.foreign[PROFILE_ALIGNED_ALLOC] =
        !loaded_contains(object, (uintptr_t)next.aligned_alloc);
    session.foreign[PROFILE_POSIX_MEMALIGN] =
        !loaded_contains(object, (uintptr_t)next.posix_memalign);
    session.foreign[PROFILE_MEMALIGN] = !loaded_contains(object, (uintptr_t)next.memalign);
    session.foreign[PROFILE_VALLOC] = !loaded_contains(object, (uintptr_t)next.valloc);
    session.foreign[PROFILE_PVALLOC] = !loaded_contains(object, (uintptr_t)next.pvalloc);
    session.of_glibc = loaded_contains(object, (uintptr_t)gnu_get_libc_version);
    copy_path(allocator, object->dlpi_name);
    return 1;
}

static uint64_t chunk_threads(uint64_t chunk)
{
    return (uint64_t)PROFILE_CHUNK_THREADS << chunk;
}

static void add_chunk(struct profile_thread *threads, uint64_t offset)
{
    session.head->chunks[chunk_count] = offset;
    chunks[chunk_count++] = threads;
    unused = 0;
}

/* Calls getrusage() for the process. Returns false if the call fails or is forbidden. */
static bool read_usage(struct rusage *usage)
{
    return !direct_forbidden &&
           !direct_failed(direct_call3(SYS_getrusage, RUSAGE_SELF, (long)usage, 0));
}

/* Determines everything that holds for a whole program image: options, program and allocator. A
 * fork's child must not do this, because dl_iterate_phdr() takes the loader's lock, and another
 * thread of the parent may have held this lock during the fork. */
static void begin_image(void)
{
    const char *gap = session_option("CAIRN_PROBE_GAP");
    session.gap = gap != NULL ? (uint32_t)strtoul(gap, NULL, 10) : 0;
    if (session.gap == 0)
        session.gap = GAP;
    own_memory_begin();
    own_memory_leave_out(watched_filter, sizeof watched_filter);
    session.exact = session_option_is("CAIRN_PROBE_PATHS", "exact");
    if (!session.exact)
        owners_unused();
    session.timers = !session_option_is("CAIRN_PROBE_TIMER", "off");
    spare_open(session_option("CAIRN_PROBE_SPARE"));
    struct rusage usage;
    peak_before = read_usage(&usage) ? (uint64_t)usage.ru_maxrss << 10 : 0;
    direct_call(SYS_readlinkat, AT_FDCWD, (long)"/proc/self/exe", (long)program, sizeof program - 1,
                0, 0);
    const char *executed = (const char *)getauxval(AT_EXECFN);
    if (program[0] == '\0' && executed != NULL) /* without /proc */
        copy_path(program, executed);
    dl_iterate_phdr(find_allocator, NULL);
    dl_iterate_phdr(find_library, NULL);
    lock_table_find_objects();
}

/* Returns ON, OFF or UNRECORDED. */
static int begin(void)
{
    /* The folder is remembered, so that a child creates its file in the same folder as its parent
     * even if the environment has changed. */
    static char folder[PATH_MAX];
    const char *wanted = session_option("CAIRN_PROBE");
    if (folder[0] == '\0' && wanted != NULL && wanted[0] == '/' && strlen(wanted) < sizeof folder)
        memcpy(folder, wanted, strlen(wanted) + 1);
    if (folder[0] == '\0' || getauxval(AT_SECURE) != 0 || !name_file(folder))
        return OFF;

    if (!is_child)
        begin_image();
    chunk_count = 0;
    vacant = 0;
    struct first *first = create();
    if (first == NULL)
        return UNRECORDED;
    struct profile_head *head = &first->head;

    head->order = PROFILE_ORDER;
    head->version = PROFILE_VERSION;
    head->head_bytes = sizeof(struct profile_head);
    head->thread_bytes = sizeof(struct profile_thread);
    head->samples_bytes = sizeof(struct profile_samples);
    head->state = PROFILE_RUNNING;
    head->file_bytes = file_bytes;
    head->process = own_process();
    head->parent = direct_forbidden ? 0 : (uint32_t)direct_call0(SYS_getppid);
    head->forked = is_child;
    head->gap = session.gap;
    head->exact = session.exact;
    head->began_unix_ns = clock_read_ns(CLOCK_REALTIME);
    head->pair_ticks = pair_ticks(false);
    head->alone_pair_ticks = pair_ticks(true);
    head->ticks_begin = head->ticks_last = ticks_now();
    head->ns_begin = head->ns_last = clock_now_ns();
    head->held_most = atomic_load_explicit(&session.held_bytes, memory_order_relaxed);
    copy_path(head->program, program);
    copy_path(head->allocator, allocator[0] != '\0' ? allocator : head->program);
    head->samples = offsetof(struct first, samples);
    first->samples.moment_ns = MOMENT_NS;
    session.head = head;
    session.samples = &first->samples;
    lock_table_begin(&first->samples.locks);
    add_chunk(first->threads, offsetof(struct first, threads));
    /* The magic is written last, because readers accept the file as a profile once it has the
     * magic. */
    memcpy(head->magic, PROFILE_MAGIC, sizeof head->magic);
    return ON;
}

bool session_path(char *to, size_t room, const char *ending)
{
    struct text text = text_over(to, room);
    if (session.head == NULL || in_spare)
        return false;
    size_t length = strlen(path) - strlen(".probe");
    for (size_t i = 0; i < length; i++)
        text_add_char(&text, path[i]);
    text_add(&text, ending);
    return !text.truncated;
}

const char *session_library(void)
{
    return library;
}

bool session_is_off(void)
{
    int now = atomic_load_explicit(&state, memory_order_acquire);
    return now == OFF || now == UNRECORDED;
}

bool session_on(void)
{
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now != NOT_BEGUN && now != BEGINNING)
        return now == ON;
    if (environ == NULL && !is_child) /* libc has not started up */
        return false;
    if (now == BEGINNING || !atomic_compare_exchange_strong(&state, &now, BEGINNING))
        return false;
    int error = errno;
    atomic_store_explicit(&state, begin(), memory_order_release);
    errno = error;
    return atomic_load(&state) == ON;
}

/* --- threads ---------------------------------------------------------------------------------- */

/* Adds `change` to the number of living threads and updates session.parallel. Returns the number
 * after the change. */
static uint64_t count_live(int64_t change)
{
    struct profile_head *head = session.head;
    uint64_t live = __atomic_add_fetch(&head->threads_live, (uint64_t)change, __ATOMIC_SEQ_CST);
    uint64_t after = live;
    if (change > 0)
        session_add(&head->threads_started, 1);
    for (uint64_t before = live + 1; before != live;
         live = __atomic_load_n(&head->threads_live, __ATOMIC_SEQ_CST)) {
        before = live; /* repeat if another thread changed the count */
        atomic_store(&session.parallel, live > 1);
    }
    return after;
}

uint64_t session_thread_comes(void)
{
    return count_live(1);
}

void session_thread_came(uint64_t live)
{
    struct profile_head *head = session.head;
    /* A signal handler may have forked, and this child could make no file. */
    if (head != NULL)
        session_raise(&head->threads_most, live);
}

void session_thread_stays_away(void)
{
    count_live(-1);
    __atomic_fetch_sub(&session.head->threads_started, 1, __ATOMIC_RELAXED);
}

/* Adds a chunk, twice as large as the one before it. Returns false if the file cannot grow. The
 * caller holds the lock. */
static bool grow(void)
{
    if (chunk_count == PROFILE_CHUNKS)
        return false;
    uint64_t bytes =
        round_up(chunk_threads(chunk_count) * sizeof(struct profile_thread), page_bytes());
    uint64_t offset = file_bytes;
    void *piece;
    if (in_spare || make_ready(file_bytes + bytes)) {
        piece = in_spare ? spare_extend(bytes) : (char *)session.head + offset;
        if (piece == NULL)
            return false;
        offset = (uint64_t)((char *)piece - (char *)session.head);
        own_memory_add(piece, bytes);
    } else {
        long made = extend(0, bytes);
        if (direct_failed(made))
            return false;
        piece = (void *)made;
    }
    file_bytes = offset + bytes;
    session.head->file_bytes = file_bytes;
    add_chunk(piece, offset);
    return true;
}

/* Returns a struct for a thread to count in, or NULL if the file cannot grow. The caller holds the
 * lock. */
static struct profile_thread *take_counts(void)
{
    if (vacant != 0) {
        struct profile_thread *counts = &chunks[(vacant - 1) & 255][(vacant - 1) >> 8];
        vacant = counts->next;
        counts->next = 0;
        return counts;
    }
    if (unused == chunk_threads(chunk_count - 1) && !grow())
        return NULL;
    return &chunks[chunk_count - 1][unused++];
}

void session_make_room(void)
{
    if (direct_forbidden) /* the file cannot be enlarged any more */
        return;
    uint64_t blocked = futex_lock_enter(&lock);
    uint64_t bytes = file_bytes;
    for (uint32_t i = 0; i < 2; i++)
        bytes +=
            round_up(chunk_threads(chunk_count + i) * sizeof(struct profile_thread), page_bytes());
    if (atomic_load(&state) == ON && !in_spare && bytes <= mapped_bytes)
        (void)make_ready(bytes);
    futex_lock_leave(&lock, blocked);
}

struct profile_thread *session_thread_begin(bool announced)
{
    struct profile_head *head = session.head;
    session_raise(&head->threads_most, announced
                                           ? __atomic_load_n(&head->threads_live, __ATOMIC_SEQ_CST)
                                           : count_live(1));
    futex_lock_take(&lock);
    struct profile_thread *counts = take_counts();
    if (counts != NULL) {
        counts->thread = own_thread();
        counts->users++;
        counts->since_ticks = ticks_now();
    } else {
        head->threads_lost++;
    }
    futex_lock_drop(&lock);
    return counts;
}

void session_thread_end(struct profile_thread *counts)
{
    count_live(-1);
    if (counts == NULL)
        return;
    futex_lock_take(&lock);
    for (uint64_t chunk = 0; chunk < chunk_count; chunk++) {
        uint64_t index = (uint64_t)(counts - chunks[chunk]);
        if (counts < chunks[chunk] || index >= chunk_threads(chunk))
            continue;
        counts->thread = 0;
        /* since_ticks is cleared first. So a reader that looks between these lines does not count
         * this lifetime twice. */
        uint64_t since = counts->since_ticks;
        counts->since_ticks = 0;
        counts->lived_ticks += ticks_now() - since;
        counts->next = vacant;
        vacant = 1 + (index << 8 | chunk);
    }
    futex_lock_drop(&lock);
}

/* --- moments ---------------------------------------------------------------------------------- */

static const struct residence unknown = {RESIDENCE_UNKNOWN, RESIDENCE_UNKNOWN, RESIDENCE_UNKNOWN,
                                         RESIDENCE_UNKNOWN};

/* Returns true if residence_look() is due. It is never due below CLOSELY_BYTES, because no finding
 * could result from so little memory. Above, it is due once a second, and whenever the resident set
 * is an eighth larger than at every look before, so that no look misses the peak by much. All
 * looks, including the next one, may take at most a fiftieth of the process's time. A look that
 * would exceed this budget is not due. */
static bool look_is_due(uint64_t resident, uint64_t lived_ns)
{
    return resident >= CLOSELY_BYTES && (looks_ns + residence_look_ns(resident)) * 50 <= lived_ns &&
           (resident > looked_bytes + looked_bytes / 8 || lived_ns - looked_ns >= NS_PER_S);
}

/* Calls residence_look() if it is due. The caller does not hold the lock, so that no other thread
 * waits during the look. Returns `unknown` if the look is not due, or if another thread is in
 * residence_look(). */
static struct residence look_closely(const struct profile_head *head, uint64_t resident)
{
    uint64_t begin = direct_now_ns();
    uint64_t lived_ns = begin - head->ns_begin;
    struct residence found = unknown;
    if (atomic_exchange_explicit(&looking, true, memory_order_acquire))
        return found;
    if (look_is_due(resident, lived_ns)) {
        found = residence_look();
        looks_ns += direct_now_ns() - begin;
        looked_ns = lived_ns;
        looked_bytes = resident > looked_bytes ? resident : looked_bytes;
    }
    atomic_store_explicit(&looking, false, memory_order_release);
    return found;
}

/* Drops every second moment (struct profile_moment) of the full list, and halves the rate of later
 * moments. Of each pair the second moment is kept. If only the first one has the figures of
 * residence_look(), the first one is kept instead. Returns the number of moments that are left. */
static size_t thin(struct profile_samples *samples)
{
    size_t kept = 0;
    for (size_t i = 0; i + 1 < PROFILE_MOMENTS; i += 2) {
        const struct profile_moment *two = &samples->moments[i];
        bool first =
            two[0].unasked_bytes != RESIDENCE_UNKNOWN && two[1].unasked_bytes == RESIDENCE_UNKNOWN;
        samples->moments[kept++] = two[first ? 0 : 1];
    }
    memset(&samples->moments[kept], 0, (PROFILE_MOMENTS - kept) * sizeof samples->moments[0]);
    samples->moment_ns *= 2;
    return kept;
}

/* Updates the head with the clocks and getrusage(). `own` is the probe's memory now. */
static void update_head(struct profile_head *head, struct own_memory own)
{
    struct rusage usage;
    if (read_usage(&usage)) {
        head->minor_faults = (uint64_t)usage.ru_minflt;
        head->major_faults = (uint64_t)usage.ru_majflt;
        head->user_us =
            (uint64_t)usage.ru_utime.tv_sec * 1000000 + (uint64_t)usage.ru_utime.tv_usec;
        head->system_us =
            (uint64_t)usage.ru_stime.tv_sec * 1000000 + (uint64_t)usage.ru_stime.tv_usec;
        uint64_t peak = (uint64_t)usage.ru_maxrss << 10;
        if (peak <= peak_before)
            peak = residence_peak();
        if (peak > head->peak_resident_bytes) {
            head->peak_resident_bytes = peak;
            head->peak_own_bytes = own.private + own.of_file;
        }
    }
    head->ticks_last = ticks_now();
    head->ns_last = direct_now_ns();
}

/* Returns the number of system calls of the kinds from `first` to `last`. */
static uint64_t calls_of(const struct profile_head *head, enum profile_call first,
                         enum profile_call last)
{
    uint64_t calls = 0;
    for (unsigned kind = first; kind <= last; kind++)
        calls += head->calls[kind].calls;
    return calls;
}

/* Appends a moment (struct profile_moment) and sets the time of the next one. The caller holds the
 * lock. */
static void note_moment(struct live live, uint64_t resident, struct residence closely,
                        struct own_memory own)
{
    static size_t used;
    struct profile_head *head = session.head;
    struct profile_samples *samples = session.samples;
    if (head == NULL || samples == NULL) /* as in session_moment() */
        return;
    update_head(head, own);
    /* After a fork the child has a new file, whose list is empty. */
    if (used != 0 && samples->moments[used - 1].ns == 0)
        used = 0;
    if (used == PROFILE_MOMENTS)
        used = thin(samples);
    uint64_t lived_ns = head->ns_last - head->ns_begin;
    samples->moments[used++] = (struct profile_moment){
        .ns = lived_ns,
        .live_bytes = live.bytes,
        .live_usable_bytes = session.measures ? live.usable : RESIDENCE_UNKNOWN,
        .live_error_bytes = live.error,
        .held_bytes = atomic_load_explicit(&session.held_bytes, memory_order_relaxed),
        .resident_bytes = resident,
        .unasked_bytes = closely.unasked_bytes,
        .unwritten_bytes = closely.unwritten_bytes,
        .huge_bytes = closely.huge_bytes,
        .own_bytes = closely.own_bytes,
        .memory_calls = calls_of(head, PROFILE_MMAP, PROFILE_MADVISE_OTHER),
        .waiting_calls = calls_of(head, PROFILE_FUTEX_WAIT, PROFILE_SLEEP),
        .other_calls = calls_of(head, PROFILE_OTHER, PROFILE_OTHER),
    };
    uint64_t ticks = head->ticks_last - head->ticks_begin;
    double rate = lived_ns != 0 ? (double)ticks / (double)lived_ns : 1.0;
    uint64_t wait = (uint64_t)(rate * (double)samples->moment_ns);
    atomic_store_explicit(&session.next_moment_ticks, head->ticks_last + wait,
                          memory_order_relaxed);
}

void session_moment(struct live live)
{
    struct profile_head *head = session.head;
    /* A signal handler may have forked, and this child could make no file. */
    if (head == NULL)
        return;
    struct own_memory own = own_memory_resident(false, head->ns_begin);
    uint64_t resident = residence_bytes(own.private);
    struct residence closely = direct_forbidden ? unknown : look_closely(head, resident);
    futex_lock_take(&lock);
    note_moment(live, resident, closely, own);
    futex_lock_drop(&lock);
}

/* --- fork and end ----------------------------------------------------------------------------- */

/* Replaces a mapped piece of the parent's file by private memory. The addresses stay mapped for the
 * following case: a signal handler interrupts an operation and forks. In the child the operation
 * goes on and may still write to these addresses. */
static void leave_piece(void *piece, uint64_t bytes)
{
    if (direct_forbidden)
        return;
    direct_call(SYS_mmap, (long)piece, (long)round_up(bytes, page_bytes()), PROT_READ | PROT_WRITE,
                MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

void session_retry(void)
{
    if (atomic_load(&state) != UNRECORDED)
        return;
    is_child = true;
    atomic_store(&session.next_moment_ticks, 0); /* add_moment() may have left UINT64_MAX */
    atomic_store(&state, NOT_BEGUN);
}

void session_forked(void)
{
    session_retry();
    if (atomic_load(&state) != ON)
        return;
    uint64_t first_bytes = mapped_bytes != 0 ? mapped_bytes : sizeof(struct first);
    leave_piece(session.head, first_bytes);
    for (uint32_t i = 1; i < chunk_count; i++)
        if ((uint64_t)((char *)chunks[i] - (char *)session.head) >= first_bytes)
            leave_piece(chunks[i], chunk_threads(i) * sizeof(struct profile_thread));
    session.head = NULL;
    session.samples = NULL;
    lock_table_begin(NULL);
    thread_state.section = NULL; /* section_record is in the parent's file */
    atomic_store(&session.parallel, false);
    atomic_store(&session.next_moment_ticks, 0);
    atomic_store(&looking, false);
    looks_ns = looked_ns = looked_bytes = 0; /* the child has a time budget of its own */

    own_memory_forked();
    (void)futex_lock_reset(&lock);
    is_child = true;
    atomic_store(&state, NOT_BEGUN);
}

void session_end(int exit_code, struct live live)
{
    if (atomic_load(&state) != ON)
        return;
    bool taken = futex_lock_take_soon(&lock);
    if (taken) {
        struct own_memory own = own_memory_resident(true, 0);
        note_moment(live, residence_bytes(own.private), unknown, own);
    }
    session.head->exit_code = (uint32_t)exit_code;
    session.head->state = PROFILE_ENDED;
    if (taken)
        futex_lock_drop(&lock);
}
