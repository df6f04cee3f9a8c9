/* memory.h - simulates memory as the threads of a model see it.
 *
 * Every memory access of the code under test comes through here. memory.c records for each byte
 * which threads accessed it, and always checks:
 *
 *     two accesses to a byte by two threads, of which one is a write and one is plain, are ordered
 *     by C11's happens-before: through locks, or through an acquiring load of a value that was
 *     stored with release. Otherwise they are a race
 *     two atomic stores to one object are ordered likewise, unless they are read-modify-writes
 *     no thread touches forbidden memory
 *
 * An atomic object keeps the values stored to it (messages), oldest first. A thread may load any
 * message that it does not know to be replaced. It knows the messages that it stored or loaded
 * itself, and those known to any thread that it synchronized with. A read-modify-write takes the
 * newest message.
 *
 * This is the C11 model with four exceptions. No load returns a value that is stored only later
 * (load buffering). A failed compare-and-swap always reads the newest message. A compare-and-swap
 * does not fail spuriously. Only the newest MEMORY_MESSAGES are kept.
 *
 * Writes to memory are logged, and undone after each execution.
 */
#ifndef CAIRN_MODEL_MEMORY_H
#define CAIRN_MODEL_MEMORY_H

#include "model_checker.h"

enum {
    MEMORY_ATOMICS = 128, /* in one execution */
    MEMORY_OBJECTS = 256, /* including locks */
    MEMORY_MESSAGES = 16, /* a power of two */
};

/* The knowledge that a thread has of the others, or that a message carries to another thread.
 *
 * Each thread has a clock, which counts its releases. clock[i] is a time on the clock of thread i:
 * all accesses of thread i up to this time happened before the present step. In the knowledge of
 * thread i itself, clock[i] is the present time.
 *
 * seen[id] is the number of a message of the object `id`. All messages with lower numbers are known
 * to be replaced. */
struct memory_knowledge {
    uint16_t clock[MODEL_CHECKER_THREADS_MAX];
    uint8_t seen[MEMORY_ATOMICS];
};

struct memory_message {
    uint64_t value;
    uint16_t when;                /* the time on the writer's clock at the store */
    uint8_t writer;               /* the number of the thread that stored */
    struct memory_knowledge told; /* knowledge of who acquires it */
};

/* An atomic object or a lock, in one execution. */
struct memory_object {
    const void *address;
    unsigned id;
    unsigned count; /* number of messages; the newest is count - 1 */
    struct memory_message messages[MEMORY_MESSAGES];
    /* The rest belongs to explore.c, and is indexed by thread. Steps are numbered from 1.
     *
     * written_before: the thread's last step that happened before a write to the object.
     * read_before: the thread's last step that happened before a read of the object.
     * last_write: the thread's last step that wrote to the object.
     * last_read: the thread's last step that read the object. */
    uint16_t written_before[MODEL_CHECKER_THREADS_MAX];
    uint16_t read_before[MODEL_CHECKER_THREADS_MAX];
    uint16_t last_write[MODEL_CHECKER_THREADS_MAX];
    uint16_t last_read[MODEL_CHECKER_THREADS_MAX];
};

/* Tracks a range of memory: writes to it are logged, races are detected, and atomic accesses are
 * steps. */
void memory_track(const void *start, size_t bytes);

/* Starts an execution, in which no access has happened and the threads know nothing of each
 * other. */
void memory_begin(void);

/* memory_mark() returns a mark for the present moment. memory_undo() undoes the writes since that
 * mark, and allows accesses to the memory that was forbidden since then. */
size_t memory_mark(void);
void memory_undo(size_t mark);

/* Returns the object at `p` in this execution. `lock` is true if the object is a lock. A lock
 * has no values, but one message, which holds everything that its last holder knew. */
struct memory_object *memory_object(const void *p, size_t bytes, bool lock);

/* Returns how many messages the thread could load. */
unsigned memory_choices(const struct memory_object *object, unsigned thread);

/* Reports an access that the compiler did not announce, by the current thread or outside all
 * threads. */
void memory_touch(const void *p, size_t bytes, bool write);

/* Forbids all further accesses to a range. The earlier accesses must be ordered before this
 * call. */
void memory_forbid(const void *start, size_t bytes);

/* Gives the current thread all knowledge of all threads. */
void memory_know_all(void);

#endif
