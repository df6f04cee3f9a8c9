/* memory.h - what threads of a model see, and know of each other.
 *
 * Every access of the code under test comes by here, and every byte remembers who touched it. Always checked:
 *
 *     two accesses to a byte, one of them a write and one of them plain, by two threads, are ordered by what C11 calls
 *     happens-before: by locks, and by loads with acquire of what was stored with release. Else it is a race
 *     two atomic stores to one object are ordered so as well, unless they are read-modify-writes
 *     memory that was forbidden is not touched, by anybody
 *
 * An atomic object keeps what was stored to it, oldest first. A thread may load any that it does not know to be
 * replaced: as known counts what the thread stored or loaded itself, and what whoever it synchronised with knew. A
 * read-modify-write takes the newest. This is the C11 model, but that no load returns what is stored only later
 * (load buffering), that a compare-and-swap which fails saw the newest, that it does not fail for nothing, and that
 * only the newest MEMORY_MESSAGES are kept.
 *
 * Writes to memory are remembered, and undone after each execution.
 */
#ifndef CAIRN_MODEL_MEMORY_H
#define CAIRN_MODEL_MEMORY_H

#include "model.h"

enum {
    MEMORY_ATOMICS = 128, /* in one execution */
    MEMORY_OBJECTS = 256, /* with the locks */
    MEMORY_MESSAGES = 16, /* a power of two */
};

/* What a thread knows of the others, or a message carries from one to the next. */
struct memory_knowledge {
    uint16_t clock[MODEL_THREADS_MAX]; /* everything up to here has happened before */
    uint8_t seen[MEMORY_ATOMICS];      /* by id: older messages are known to be replaced */
};

struct memory_message {
    uint64_t value;
    uint16_t when; /* the clock of `writer` */
    uint8_t writer;
    struct memory_knowledge told;
};

/* An atomic object or a lock, in one execution. */
struct memory_object {
    const void *address;
    unsigned id;
    unsigned count; /* messages ever; the newest has this number less 1 */
    struct memory_message messages[MEMORY_MESSAGES];
    /* explore.c: which steps came to it, as numbers from 1 */
    uint16_t written_before
        [MODEL_THREADS_MAX]; /* what happened before the last write; likewise the reads */
    uint16_t read_before[MODEL_THREADS_MAX];
    uint16_t last_write[MODEL_THREADS_MAX]; /* by each thread */
    uint16_t last_read[MODEL_THREADS_MAX];
};

/* Memory in which writes are remembered, races are looked for, and atomic accesses are steps. */
void memory_track(const void *start, size_t bytes);

/* Nothing happened yet; threads know nothing of each other. */
void memory_begin(void);

/* Writes since the mark are undone, and the memory that was forbidden since is allowed. */
size_t memory_mark(void);
void memory_undo(size_t mark);

/* The object at `p`, in this execution. A lock has no messages: the first one is what its last holder knew. */
struct memory_object *memory_object(const void *p, size_t bytes, bool lock);

/* How many messages the thread could load. */
unsigned memory_choices(const struct memory_object *object, unsigned thread);

/* An access that the compiler did not announce, by the thread that runs, or by nobody. */
void memory_touch(const void *p, size_t bytes, bool write);

/* From here on nobody may touch it. All that did is ordered before. */
void memory_forbid(const void *start, size_t bytes);

/* Whoever runs knows all that was done by anybody. */
void memory_know_all(void);

#endif
