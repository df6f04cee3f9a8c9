/* unwind.h - finds the call stack of the calling thread.
 *
 * The tables that compilers make for exceptions (.eh_frame, DWARF 5, 6.4) say how to go from a
 * function to its caller. The rule for each return address is kept in a table of the process, so
 * that a second stack with the same frames is found quickly. Code that interpreters generate has no
 * such tables. There the frame pointers lead to the caller. Each step has to lead to a higher
 * address of the stack, except from a signal handler. Memory is read through peek.h, and the loader
 * is asked through objects.h, so that nothing here allocates or crashes on a damaged stack. With
 * glibc 2.35 and newer, nothing takes a lock of the loader. Any thread may call these functions.
 */
#ifndef CAIRN_PROBE_UNWIND_H
#define CAIRN_PROBE_UNWIND_H

#include "probe/thread_state.h"
#include "record/call_stacks.h"

/* True if stacks can be found on this kind of processor. */
#if defined(__x86_64__)
enum { UNWIND_WORKS = 1 };
#else
enum { UNWIND_WORKS = 0 };
#endif

struct unwind_frame {
    uint32_t object; /* number of the object (objects.h); 0: none */
    uint64_t place;  /* as call_stacks_node.place */
};

struct unwind_stack {
    size_t count;
    bool deeper;                                    /* the stack has more frames */
    struct unwind_frame frames[CALL_STACKS_FRAMES]; /* the innermost one comes first */
};

/* Notes the registers of the calling function at this point. */
static inline __attribute__((always_inline)) void unwind_here(struct unwind_start *start)
{
#if defined(__x86_64__)
    __asm__ volatile("leaq 1f(%%rip), %%rax\n\t"
                     "movq %%rax, %0\n\t"
                     "movq %%rsp, %1\n\t"
                     "movq %%rbp, %2\n"
                     "1:"
                     : "=m"(start->instruction), "=m"(start->stack), "=m"(start->frame)
                     :
                     : "rax");
#else
    *start = (struct unwind_start){.instruction = 0};
#endif
}

/* Finds the frames of the stack, from the function of `start` to the outermost one. Takes about
 * 5 KiB of the present stack. */
void unwind(const struct unwind_start *start, struct unwind_stack *found);

#endif
