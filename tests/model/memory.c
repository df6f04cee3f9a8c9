#include "memory.h"

#include "explore.h"
#include "os/lock.h"

#include <string.h>

enum {
    WORDS = 1 << 13, /* words in the table; a power of two */
    TRACKED = 8,
    FORBIDDEN = 16,
    WRITES = 1 << 14,
};

enum how { READ, WRITE, ATOMIC_READ, ATOMIC_WRITE };

struct range {
    uintptr_t start;
    size_t bytes;
};

/* The accesses to one byte. last[how][i] is the time on the clock of thread i (memory.h) at its
 * last access of the kind `how`, or 0 if there was none. */
struct cell {
    uint16_t last[4][MODEL_CHECKER_THREADS_MAX];
};

/* Eight bytes of memory at an address that 8 divides. */
struct word {
    uintptr_t number; /* the address / 8; 0: an unused entry of the table */
    /* The number of the execution in which users, object and cells were set. */
    uint32_t execution;
    /* The value that `marks` had when the word's content was last written to the log `writes`. */
    uint32_t remembered;
    unsigned users;                  /* the threads that accessed the word, one bit each */
    struct memory_object *object[2]; /* the objects in the word's halves */
    struct cell cells[8];            /* one for each byte */
};

static struct word words[WORDS];
static uint32_t execution;
static struct memory_object objects[MEMORY_OBJECTS];
static unsigned object_count;
static unsigned atomic_count;
static struct memory_knowledge knows[MODEL_CHECKER_THREADS_MAX];

static struct range tracked[TRACKED];
static unsigned tracked_count;
static struct range forbidden[FORBIDDEN];
static unsigned forbidden_count;

static struct {
    uint64_t *address; /* NULL: a range was forbidden, not written */
    uint64_t was;      /* the content before the write */
} writes[WRITES];
static size_t write_count;
static uint32_t marks; /* changes with each mark and each undoing */

static bool within(const struct range *ranges, unsigned count, const void *p)
{
    for (unsigned i = 0; i < count; i++)
        if ((uintptr_t)p - ranges[i].start < ranges[i].bytes)
            return true;
    return false;
}

void memory_track(const void *start, size_t bytes)
{
    tracked[tracked_count++] = (struct range){(uintptr_t)start, bytes};
}

static struct word *word_of(const void *p)
{
    uintptr_t number = (uintptr_t)p / 8;
    size_t place = (number * UINT64_C(0x9e3779b97f4a7c15)) >> 51;
    while (words[place].number != number) {
        if (words[place].number == 0) {
            words[place].number = number;
            break;
        }
        place = (place + 1) % WORDS;
    }
    struct word *word = &words[place];
    if (word->execution != execution) {
        word->execution = execution;
        word->users = 0;
        word->object[0] = word->object[1] = NULL;
        memset(word->cells, 0, sizeof word->cells);
    }
    return word;
}

/* --- undoing writes --------------------------------------------------------------------------- */

static void remember(struct word *word)
{
    if (word->remembered == marks)
        return;
    if (write_count == WRITES)
        model_checker_fail("more writes than the model can undo: raise WRITES");
    word->remembered = marks;
    uint64_t *address = (uint64_t *)(word->number * 8);
    writes[write_count].address = address;
    writes[write_count++].was = *address;
}

size_t memory_mark(void)
{
    marks++;
    return write_count;
}

void memory_undo(size_t mark)
{
    while (write_count > mark) {
        write_count--;
        if (writes[write_count].address == NULL)
            forbidden_count--;
        else
            *writes[write_count].address = writes[write_count].was;
    }
    marks++;
}

void memory_begin(void)
{
    execution++;
    object_count = 0;
    atomic_count = 0;
    memset(knows, 0, sizeof knows);
    for (unsigned i = 0; i < MODEL_CHECKER_THREADS_MAX; i++)
        knows[i].clock[i] = 1;
}

/* --- knowledge of threads --------------------------------------------------------------------- */

static void learn(struct memory_knowledge *knowledge, const struct memory_knowledge *told)
{
    for (unsigned i = 0; i < MODEL_CHECKER_THREADS_MAX; i++)
        if (told->clock[i] > knowledge->clock[i])
            knowledge->clock[i] = told->clock[i];
    for (unsigned i = 0; i < atomic_count; i++)
        if (told->seen[i] > knowledge->seen[i])
            knowledge->seen[i] = told->seen[i];
}

void memory_know_all(void)
{
    struct memory_knowledge *self = &knows[model_checker_self()];
    for (unsigned i = 0; i < MODEL_CHECKER_THREADS_MAX; i++)
        learn(self, &knows[i]);
    for (unsigned i = 0; i < object_count; i++)
        if (objects[i].id < MEMORY_ATOMICS)
            self->seen[objects[i].id] = (uint8_t)(objects[i].count - 1);
}

static const char *const how_names[] = {"reads", "writes", "atomically reads", "atomically writes"};

static void ordered_after(const struct cell *cell, enum how before, enum how now, unsigned self,
                          const void *p)
{
    for (unsigned i = 0; i < MODEL_CHECKER_THREADS_MAX; i++) {
        if (i != self && cell->last[before][i] > knows[self].clock[i]) {
            char name[128];
            model_checker_describe(p, name, sizeof name);
            model_checker_fail("a race: %s %s %s, which %s %s at the same time",
                               model_checker_thread_name(self), how_names[now], name,
                               model_checker_thread_name(i), how_names[before]);
        }
    }
}

static void look_for_races(struct word *word, const void *p, size_t bytes, enum how how,
                           unsigned self)
{
    word->users |= 1u << self;
    bool alone = word->users == 1u << self;
    for (size_t i = 0; i < bytes; i++) {
        struct cell *cell = &word->cells[((uintptr_t)p + i) % 8];
        cell->last[how][self] = knows[self].clock[self];
        if (alone)
            continue;
        ordered_after(cell, WRITE, how, self, p);
        if (how == WRITE || how == ATOMIC_WRITE)
            ordered_after(cell, READ, how, self, p);
        if (how == READ || how == WRITE)
            ordered_after(cell, ATOMIC_WRITE, how, self, p);
        if (how == WRITE)
            ordered_after(cell, ATOMIC_READ, how, self, p);
    }
}

/* Records and checks an access to at most the eight bytes of one word. */
static void touch_word(const void *p, size_t bytes, enum how how)
{
    if (!within(tracked, tracked_count, p)) {
        if ((uintptr_t)p < 4096)
            model_checker_fail("an access to address %#zx", (size_t)(uintptr_t)p);
        return;
    }
    if (within(forbidden, forbidden_count, p)) {
        char name[128];
        model_checker_describe(p, name, sizeof name);
        int self = model_checker_self();
        model_checker_fail("%s %s %s, which was given back",
                           self < 0 ? "the check" : model_checker_thread_name((unsigned)self),
                           how_names[how], name);
    }
    int self = model_checker_self();
    bool write = how == WRITE || how == ATOMIC_WRITE;
    if (self < 0 && !write)
        return;
    struct word *word = word_of(p);
    if (write)
        remember(word);
    if (self >= 0)
        look_for_races(word, p, bytes, how, (unsigned)self);
}

static void touch(const void *p, size_t bytes, enum how how)
{
    const char *at = p;
    while (bytes > 0) {
        size_t here = 8 - (uintptr_t)at % 8;
        if (here > bytes)
            here = bytes;
        touch_word(at, here, how);
        at += here;
        bytes -= here;
    }
}

void memory_touch(const void *p, size_t bytes, bool write)
{
    touch(p, bytes, write ? WRITE : READ);
}

void memory_forbid(const void *start, size_t bytes)
{
    if (forbidden_count == FORBIDDEN || write_count == WRITES)
        model_checker_fail("more memory was given back than the model can forbid: raise FORBIDDEN");
    forbidden[forbidden_count++] = (struct range){(uintptr_t)start, bytes};
    writes[write_count++].address = NULL;
}

/* --- atomic objects --------------------------------------------------------------------------- */

static uint64_t value_at(const volatile void *p, size_t bytes)
{
    switch (bytes) {
    case 1:
        return *(const volatile uint8_t *)p;
    case 2:
        return *(const volatile uint16_t *)p;
    case 4:
        return *(const volatile uint32_t *)p;
    default:
        return *(const volatile uint64_t *)p;
    }
}

static void put_value(volatile void *p, size_t bytes, uint64_t value)
{
    switch (bytes) {
    case 1:
        *(volatile uint8_t *)p = (uint8_t)value;
        break;
    case 2:
        *(volatile uint16_t *)p = (uint16_t)value;
        break;
    case 4:
        *(volatile uint32_t *)p = (uint32_t)value;
        break;
    default:
        *(volatile uint64_t *)p = value;
    }
}

struct memory_object *memory_object(const void *p, size_t bytes, bool lock)
{
    struct memory_object **place = &word_of(p)->object[(uintptr_t)p / 4 % 2];
    if (*place != NULL)
        return *place;
    if (object_count == MEMORY_OBJECTS || (!lock && atomic_count == MEMORY_ATOMICS))
        model_checker_fail(
            "more atomic objects than the model can follow: raise MEMORY_ATOMICS and "
            "MEMORY_OBJECTS");
    struct memory_object *object = &objects[object_count++];
    object->address = p;
    object->id = lock ? MEMORY_ATOMICS : atomic_count++;
    object->count = 1;
    memset(&object->messages[0], 0, sizeof object->messages[0]);
    object->messages[0].value = value_at(p, bytes);
    memset(object->written_before, 0,
           sizeof *object - offsetof(struct memory_object, written_before));
    *place = object;
    return object;
}

static struct memory_message *message_of(struct memory_object *object, unsigned number)
{
    return &object->messages[number % MEMORY_MESSAGES];
}

unsigned memory_choices(const struct memory_object *object, unsigned thread)
{
    unsigned choices = object->count - knows[thread].seen[object->id];
    return choices < MEMORY_MESSAGES ? choices : MEMORY_MESSAGES;
}

/* Returns whether an atomic access is a step of a thread. Otherwise it is executed directly. */
static bool is_step(const volatile void *p)
{
    return model_checker_self() >= 0 && within(tracked, tracked_count, (const void *)p);
}

static bool acquires(int order)
{
    return order != __ATOMIC_RELAXED && order != __ATOMIC_RELEASE;
}

static bool releases(int order)
{
    return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

static uint64_t load(const volatile void *volatile_p, size_t bytes, int order)
{
    const void *p = (const void *)volatile_p;
    if (!is_step(p)) {
        touch(p, bytes, ATOMIC_READ);
        return value_at(p, bytes);
    }
    struct memory_object *object = memory_object(p, bytes, false);
    unsigned older = explore_step(EXPLORE_LOAD, object);
    touch(p, bytes, ATOMIC_READ);
    unsigned number = object->count - 1 - older;
    struct memory_message *message = message_of(object, number);
    struct memory_knowledge *self = &knows[model_checker_self()];
    if (number > self->seen[object->id])
        self->seen[object->id] = (uint8_t)number;
    if (acquires(order))
        learn(self, &message->told);
    explore_came_to(message->value);
    return message->value;
}

/* Adds a message to the object. The message carries the knowledge `told`. If `order` is a release,
 * the message also carries the knowledge of the thread. */
static void append(struct memory_object *object, uint64_t value, int order,
                   const struct memory_knowledge *told)
{
    unsigned self = (unsigned)model_checker_self();
    if (object->count == UINT8_MAX)
        model_checker_fail("more stores to one object than the model can count");
    unsigned number = object->count++;
    knows[self].seen[object->id] = (uint8_t)number;
    struct memory_message *message = message_of(object, number);
    message->value = value;
    message->writer = (uint8_t)self;
    message->when = knows[self].clock[self];
    if (told != NULL)
        message->told = *told;
    else
        memset(&message->told, 0, sizeof message->told);
    if (releases(order)) {
        learn(&message->told, &knows[self]);
        knows[self].clock[self]++;
    }
}

static void store(volatile void *volatile_p, size_t bytes, uint64_t value, int order)
{
    void *p = (void *)volatile_p;
    if (!is_step(p)) {
        touch(p, bytes, ATOMIC_WRITE);
        put_value(p, bytes, value);
        return;
    }
    struct memory_object *object = memory_object(p, bytes, false);
    explore_step(EXPLORE_STORE, object);
    touch(p, bytes, ATOMIC_WRITE);
    unsigned self = (unsigned)model_checker_self();
    struct memory_message *newest = message_of(object, object->count - 1);
    if (newest->when > knows[self].clock[newest->writer]) {
        char name[128];
        model_checker_describe(p, name, sizeof name);
        model_checker_fail("%s stores to %s, and nothing orders this after a store by %s",
                           model_checker_thread_name(self), name,
                           model_checker_thread_name(newest->writer));
    }
    put_value(p, bytes, value);
    append(object, value, order, NULL);
    explore_came_to(value);
}

enum change { EXCHANGE, ADD, SUBTRACT, AND, OR, XOR };

static uint64_t changed(enum change change, uint64_t was, uint64_t by)
{
    switch (change) {
    case ADD:
        return was + by;
    case SUBTRACT:
        return was - by;
    case AND:
        return was & by;
    case OR:
        return was | by;
    case XOR:
        return was ^ by;
    default:
        return by;
    }
}

static uint64_t change(volatile void *volatile_p, size_t bytes, enum change how, uint64_t by,
                       int order)
{
    void *p = (void *)volatile_p;
    struct memory_object *object = NULL;
    if (is_step(p)) {
        object = memory_object(p, bytes, false);
        explore_step(EXPLORE_CHANGE, object);
    }
    touch(p, bytes, ATOMIC_WRITE);
    uint64_t was = value_at(p, bytes);
    put_value(p, bytes, changed(how, was, by));
    if (object != NULL) {
        struct memory_message *newest = message_of(object, object->count - 1);
        if (acquires(order))
            learn(&knows[model_checker_self()], &newest->told);
        append(object, value_at(p, bytes), order, &newest->told);
        explore_came_to(value_at(p, bytes));
    }
    return was;
}

static bool compare_and_swap(volatile void *volatile_p, size_t bytes, uint64_t *expected,
                             uint64_t value, int order, int order_of_failure)
{
    void *p = (void *)volatile_p;
    struct memory_object *object = NULL;
    if (is_step(p)) {
        object = memory_object(p, bytes, false);
        explore_step(EXPLORE_CHANGE, object);
    }
    uint64_t was = value_at(p, bytes);
    bool same = was == *expected;
    *expected = was;
    touch(p, bytes, same ? ATOMIC_WRITE : ATOMIC_READ);
    if (same)
        put_value(p, bytes, value);
    if (object != NULL) {
        struct memory_message *newest = message_of(object, object->count - 1);
        struct memory_knowledge *self = &knows[model_checker_self()];
        self->seen[object->id] = (uint8_t)(object->count - 1);
        if (acquires(same ? order : order_of_failure))
            learn(self, &newest->told);
        if (same)
            append(object, value, order, &newest->told);
        explore_came_to(same ? value : was);
    }
    return same;
}

/* --- locks ------------------------------------------------------------------------------------ */

void lock_take(struct lock *lock)
{
    int self = model_checker_self();
    struct memory_object *object = NULL;
    if (self >= 0) {
        object = memory_object(lock, sizeof lock->holder, true);
        explore_step(EXPLORE_TAKE, object);
        learn(&knows[self], &object->messages[0].told);
    }
    if (lock->holder != 0)
        model_checker_fail("a lock is taken while it is held");
    remember(word_of(lock));
    lock->holder = (uint32_t)(self + 2);
}

void lock_drop(struct lock *lock)
{
    int self = model_checker_self();
    if (lock->holder != (uint32_t)(self + 2))
        model_checker_fail("a lock is dropped by a thread that does not hold it");
    remember(word_of(lock));
    lock->holder = 0;
    if (self >= 0) {
        struct memory_object *object = memory_object(lock, sizeof lock->holder, true);
        learn(&object->messages[0].told, &knows[self]);
        knows[self].clock[self]++;
        explore_dropped(object);
    }
}

/* --- functions that the compiler calls, by the names of gcc's and clang's thread sanitizer ---- */

#define PLAIN(bytes)                                                                               \
    void __tsan_read##bytes(void *p);                                                              \
    void __tsan_read##bytes(void *p)                                                               \
    {                                                                                              \
        touch(p, bytes, READ);                                                                     \
    }                                                                                              \
    void __tsan_write##bytes(void *p);                                                             \
    void __tsan_write##bytes(void *p)                                                              \
    {                                                                                              \
        touch(p, bytes, WRITE);                                                                    \
    }                                                                                              \
    void __tsan_unaligned_read##bytes(void *p);                                                    \
    void __tsan_unaligned_read##bytes(void *p)                                                     \
    {                                                                                              \
        touch(p, bytes, READ);                                                                     \
    }                                                                                              \
    void __tsan_unaligned_write##bytes(void *p);                                                   \
    void __tsan_unaligned_write##bytes(void *p)                                                    \
    {                                                                                              \
        touch(p, bytes, WRITE);                                                                    \
    }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

#define CHANGE(bits, name, how)                                                                    \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile void *p, uint##bits##_t value,            \
                                                int order);                                        \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile void *p, uint##bits##_t value, int order) \
    {                                                                                              \
        return (uint##bits##_t)change(p, bits / 8, how, value, order);                             \
    }

#define COMPARE_AND_SWAP(bits, name)                                                               \
    bool __tsan_atomic##bits##_compare_exchange_##name(                                            \
        volatile void *p, void *expected, uint##bits##_t value, int order, int failing);           \
    bool __tsan_atomic##bits##_compare_exchange_##name(                                            \
        volatile void *p, void *expected, uint##bits##_t value, int order, int failing)            \
    {                                                                                              \
        uint64_t was = *(uint##bits##_t *)expected;                                                \
        bool same = compare_and_swap(p, bits / 8, &was, value, order, failing);                    \
        *(uint##bits##_t *)expected = (uint##bits##_t)was;                                         \
        return same;                                                                               \
    }

#define ATOMIC(bits)                                                                               \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile void *p, int order);                  \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile void *p, int order)                   \
    {                                                                                              \
        return (uint##bits##_t)load(p, bits / 8, order);                                           \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile void *p, uint##bits##_t value, int order);           \
    void __tsan_atomic##bits##_store(volatile void *p, uint##bits##_t value, int order)            \
    {                                                                                              \
        store(p, bits / 8, value, order);                                                          \
    }                                                                                              \
    CHANGE(bits, exchange, EXCHANGE)                                                               \
    CHANGE(bits, fetch_add, ADD)                                                                   \
    CHANGE(bits, fetch_sub, SUBTRACT)                                                              \
    CHANGE(bits, fetch_and, AND)                                                                   \
    CHANGE(bits, fetch_or, OR)                                                                     \
    CHANGE(bits, fetch_xor, XOR)                                                                   \
    COMPARE_AND_SWAP(bits, strong)                                                                 \
    COMPARE_AND_SWAP(bits, weak)                                                                   \
    uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                                     \
        volatile void *p, uint##bits##_t expected, uint##bits##_t value, int order, int failing);  \
    uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                                     \
        volatile void *p, uint##bits##_t expected, uint##bits##_t value, int order, int failing)   \
    {                                                                                              \
        uint64_t was = expected;                                                                   \
        compare_and_swap(p, bits / 8, &was, value, order, failing);                                \
        return (uint##bits##_t)was;                                                                \
    }
ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

void __tsan_read_range(void *p, size_t bytes);
void __tsan_read_range(void *p, size_t bytes)
{
    touch(p, bytes, READ);
}

void __tsan_write_range(void *p, size_t bytes);
void __tsan_write_range(void *p, size_t bytes)
{
    touch(p, bytes, WRITE);
}

void *__tsan_memset(void *p, int value, size_t bytes);
void *__tsan_memset(void *p, int value, size_t bytes)
{
    touch(p, bytes, WRITE);
    return memset(p, value, bytes);
}

void *__tsan_memcpy(void *to, const void *from, size_t bytes);
void *__tsan_memcpy(void *to, const void *from, size_t bytes)
{
    touch(from, bytes, READ);
    touch(to, bytes, WRITE);
    return memcpy(to, from, bytes);
}

void *__tsan_memmove(void *to, const void *from, size_t bytes);
void *__tsan_memmove(void *to, const void *from, size_t bytes)
{
    touch(from, bytes, READ);
    touch(to, bytes, WRITE);
    return memmove(to, from, bytes);
}

void __tsan_init(void);
void __tsan_init(void)
{
}

void __tsan_atomic_signal_fence(int order);
void __tsan_atomic_signal_fence(int order)
{
    (void)order;
}

void __tsan_func_entry(void *caller);
void __tsan_func_entry(void *caller)
{
    (void)caller;
}

void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}
