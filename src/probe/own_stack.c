#include "probe/own_stack.h"

#include "probe/direct_syscall.h"
#include "probe/futex_lock.h"
#include "probe/own_memory.h"

#include <sys/auxv.h>

static _Atomic bool program_has_some;

bool own_stack_program_has_some(void)
{
    return atomic_load_explicit(&program_has_some, memory_order_relaxed);
}

void own_stack_note_programs(void)
{
    atomic_store_explicit(&program_has_some, true, memory_order_relaxed);
}

#if defined(__x86_64__)

enum { CALL_BYTES = 32 << 10, SIGNAL_BYTES_LEAST = 64 << 10, SIGNAL_FRAMES = 3, MASK_BYTES = 8 };

/* The lowest bytes of a stack that no thread uses. */
struct unused {
    struct unused *next;
};

/* Unused stacks of one kind. The lock is taken with the program's signals blocked, or by a thread
 * whose guard is not THREAD_OUTSIDE. */
static struct stacks {
    struct futex_lock lock;
    struct unused *first;
} for_calls, for_signals;

static struct unused *take(struct stacks *stacks, size_t bytes)
{
    futex_lock_take(&stacks->lock);
    struct unused *stack = stacks->first;
    if (stack != NULL)
        stacks->first = stack->next;
    futex_lock_drop(&stacks->lock);
    return stack != NULL ? stack : own_memory_map(bytes);
}

static void put_back(struct stacks *stacks, struct unused *stack)
{
    futex_lock_take(&stacks->lock);
    stack->next = stacks->first;
    stacks->first = stack;
    futex_lock_drop(&stacks->lock);
}

/* Calls function(argument) with the stack pointer at `top`. The caller's frame stays reachable
 * through rbp, for unwinders. */
void own_stack_switch(void *top, void (*function)(void *), void *argument)
    __attribute__((visibility("hidden")));
__asm__(".pushsection .text\n"
        ".globl own_stack_switch\n"
        ".hidden own_stack_switch\n"
        ".type own_stack_switch, @function\n"
        "own_stack_switch:\n"
        ".cfi_startproc\n"
        "  push %rbp\n"
        "  .cfi_def_cfa_offset 16\n"
        "  .cfi_offset %rbp, -16\n"
        "  mov %rsp, %rbp\n"
        "  .cfi_def_cfa_register %rbp\n"
        "  mov %rdi, %rsp\n"
        "  mov %rdx, %rdi\n"
        "  call *%rsi\n"
        "  mov %rbp, %rsp\n"
        "  pop %rbp\n"
        "  .cfi_def_cfa %rsp, 8\n"
        "  ret\n"
        ".cfi_endproc\n"
        ".size own_stack_switch, . - own_stack_switch\n"
        ".popsection\n");

static const uint64_t sigsys = UINT64_C(1) << (SIGSYS - 1);

void own_stack_call(void (*function)(void *), void *argument)
{
    const uint64_t all = ~sigsys;
    uint64_t before = all;
    if (!direct_forbidden)
        direct_call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&all, (long)&before, MASK_BYTES, 0, 0);
    struct unused *stack = take(&for_calls, CALL_BYTES);
    if (stack != NULL) {
        own_stack_switch((char *)stack + CALL_BYTES, function, argument);
        put_back(&for_calls, stack);
    } else {
        function(argument);
    }
    const uint64_t blocked_here = all & ~before;
    if (blocked_here != 0)
        direct_call(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&blocked_here, 0, MASK_BYTES, 0, 0);
}

/* Returns the size of a signal stack: some nested signals, and the program's handler of SIGSYS. */
static size_t signal_bytes(void)
{
    enum { AUXV_MINSIGSTKSZ = 51, PAGE = 4096 };
    size_t bytes = SIGNAL_BYTES_LEAST + SIGNAL_FRAMES * getauxval(AUXV_MINSIGSTKSZ);
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

bool own_stack_is_ours(const struct thread_state *me, const stack_t *stack)
{
    return me->signal_stack != NULL && stack->ss_sp == me->signal_stack;
}

void own_stack_arm(struct thread_state *me)
{
    stack_t now = {.ss_flags = 0};
    if (direct_forbidden || direct_failed(direct_call3(SYS_sigaltstack, 0, (long)&now, 0)) ||
        own_stack_is_ours(me, &now))
        return;
    if ((now.ss_flags & SS_DISABLE) == 0) {
        own_stack_note_programs();
        return;
    }
    if (me->signal_stack == NULL)
        me->signal_stack = take(&for_signals, signal_bytes());
    const stack_t ours = {.ss_sp = me->signal_stack, .ss_size = signal_bytes()};
    if (me->signal_stack != NULL)
        direct_call3(SYS_sigaltstack, (long)&ours, 0, 0);
}

void own_stack_disarm(struct thread_state *me)
{
    stack_t now = {.ss_flags = 0};
    const stack_t none = {.ss_flags = SS_DISABLE};
    if (me->signal_stack == NULL || direct_failed(direct_call3(SYS_sigaltstack, 0, (long)&now, 0)))
        return;
    if (own_stack_is_ours(me, &now) &&
        direct_failed(direct_call3(SYS_sigaltstack, (long)&none, 0, 0)))
        return;
    put_back(&for_signals, me->signal_stack);
    me->signal_stack = NULL;
}

void own_stack_forked(void)
{
    if (futex_lock_reset(&for_calls.lock))
        for_calls.first = NULL;
    if (futex_lock_reset(&for_signals.lock))
        for_signals.first = NULL;
}

#else

void own_stack_call(void (*function)(void *), void *argument)
{
    function(argument);
}

bool own_stack_is_ours(const struct thread_state *me, const stack_t *stack)
{
    (void)me;
    (void)stack;
    return false;
}

void own_stack_arm(struct thread_state *me)
{
    (void)me;
}

void own_stack_disarm(struct thread_state *me)
{
    (void)me;
}

void own_stack_forked(void)
{
}

#endif
