/* thread.h - every thread has one pointer of ours: its heap.
 *
 * It begins as heap_none, whose lists are all empty, so that the fast paths need no question whether a thread has been
 * here before: its first call finds an empty list, and the cold door lets thread_birth() look. After the thread's last
 * destructor it is heap_gone, empty as well; what is then still allocated comes from one heap for all such threads,
 * by turns (thread_late()).
 *
 * Static thread-local storage is this one pointer, so that a library that links us can be opened late.
 */
#ifndef CAIRN_ALLOC_THREAD_H
#define CAIRN_ALLOC_THREAD_H

#include "alloc/heap.h"

extern const struct heap heap_none __attribute__((visibility("hidden")));
extern const struct heap heap_gone __attribute__((visibility("hidden")));
extern _Thread_local struct heap *thread_heap
    __attribute__((visibility("hidden"), tls_model("initial-exec")));

/* The calling thread's heap, after it was found to be heap_none or heap_gone. NULL: there is none for it, because the
 * thread is ending or the machine refuses; the caller uses thread_late(). */
struct heap *thread_birth(void) __attribute__((cold));

/* A small block from the heap of those without one. */
void *thread_late(size_t size) __attribute__((cold));

#endif
