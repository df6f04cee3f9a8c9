#include "probe/own_stack.h"

#include "probe/direct_syscall.h"
#include "probe/futex_lock.h"
#include "probe/own_memory.h"
#include "probe/signal_mask.h"

#include <assert.h>
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

/* A stack that no thread uses. Its lowest bytes hold the link of the list. */
struct unused {
    struct unused *next;
};

/* Unused stacks of one kind: those of the list, and those of the last mapping that no thread has
 * used. The lock is taken with the program's signals blocked, or by a thread whose guard is not
 * THREAD_OUTSIDE. */
static struct stacks {
    struct futex_lock lock;
    struct unused *first;
    char *mapped;   /* first stack that no thread has used */
    uint32_t left;  /* number of such stacks */
    uint32_t count; /* number of all stacks in the last mapping */
} for_calls, for_signals;

/* Returns a stack that no thread has used, or NULL. A mapping holds twice as many stacks as the one
 * before it, up to a limit, because own_memory.h remembers few mappings. If the kernel refuses so
 * much memory, the mapping holds a single stack. */
static struct unused *new_stack(struct stacks *stacks, size_t bytes)
{
    enum { MOST = 64 };
    if (stacks->left == 0) {
        uint32_t count = stacks->count == 0 ? 1 : stacks->count < MOST ? 2 * stacks->count : MOST;
        stacks->mapped = own_memory_map_sparse(count * bytes);
        if (stacks->mapped == NULL) {
            count = 1;
            stacks->mapped = own_memory_map_sparse(bytes);
        }
        stacks->left = stacks->count = stacks->mapped != NULL ? count : 0;
    }
    if (stacks->left == 0)
        return NULL;
    char *stack = stacks->mapped;
    stacks->left--;
    stacks->mapped += bytes;
    return (struct unused *)(void *)stack;
}

static struct unused *take(struct stacks *stacks, size_t bytes)
{
    futex_lock_take(&stacks->lock);
    struct unused *stack = stacks->first;
    if (stack != NULL)
        stacks->first = stack->next;
    else
        stack = new_stack(stacks, bytes);
    futex_lock_drop(&stacks->lock);
    return stack;
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

/* Returns the size of a signal stack: some nested signals, and the program's handler of SIGSYS. */
static size_t signal_bytes(void)
{
    enum { AUXV_MINSIGSTKSZ = 51, PAGE = 4096 };
    size_t bytes = SIGNAL_BYTES_LEAST + SIGNAL_FRAMES * getauxval(AUXV_MINSIGSTKSZ);
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* A call that is made on another stack. */
struct call {
    void (*function)(void *);
    void *argument;
    bool from_signal_stack; /* the caller runs on the alternate signal stack */
    /* The following two are set only if from_signal_stack is true. */
    uint64_t before;      /* signal mask before SIGSYS was blocked */
    stack_t signal_stack; /* the alternate signal stack */
};

enum { CALL_ROOM = 64 };
static_assert(sizeof(struct call) <= CALL_ROOM, "the call has room above the stack");

bool own_stack_holds(const struct thread_state *me, uintptr_t address)
{
    uintptr_t ours = (uintptr_t)me->signal_stack;
    return ours != 0 && address - ours < signal_bytes();
}

/* Returns true if the thread may run on its alternate signal stack, that of the program or that of
 * the probe. */
static bool may_be_on_signal_stack(void)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    return own_stack_program_has_some() || own_stack_holds(&thread_state, here);
}

/* Makes the call. If the caller is a signal handler, its frames lie on the alternate signal stack,
 * and the thread is no longer on this stack. A SIGSYS during the call would then begin at the top
 * of the alternate stack and destroy those frames. So the thread has no alternate stack until the
 * call returns. Another thread may install a filter meanwhile that does not permit these calls. The
 * thread then gets its alternate stack back when the handler returns: the kernel restores it. */
static void call_there(void *given)
{
    struct call *call = given;
    const stack_t none = {.ss_flags = SS_DISABLE};
    if (!call->from_signal_stack ||
        direct_failed(direct_try(SYS_sigaltstack, (long)&none, 0, 0, 0, 0, 0))) {
        call->function(call->argument);
        return;
    }
    signals_unblock(sigsys & ~call->before);
    call->function(call->argument);
    if (direct_forbidden && !direct_permits_unblocking)
        return;
    direct_call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&sigsys, 0, MASK_BYTES, 0, 0);
    call->signal_stack.ss_flags &= ~SS_ONSTACK;
    direct_call3(SYS_sigaltstack, (long)&call->signal_stack, 0, 0);
}

/* Sets call->from_signal_stack and the fields that depend on it. `call` lies on the other stack, so
 * that the present stack needs no room for it. Blocks SIGSYS if the thread runs on its alternate
 * signal stack. */
static void look_for_signal_stack(struct call *call)
{
    stack_t *now = &call->signal_stack;
    call->from_signal_stack =
        may_be_on_signal_stack() &&
        !direct_failed(direct_try(SYS_sigaltstack, 0, (long)now, 0, 0, 0, 0)) &&
        (now->ss_flags & SS_ONSTACK) != 0 &&
        !direct_failed(direct_try(SYS_rt_sigprocmask, SIG_BLOCK, (long)&sigsys, (long)&call->before,
                                  MASK_BYTES, 0, 0));
}

void own_stack_call(void (*function)(void *), void *argument)
{
    uint64_t blocked = signals_block();
    struct unused *stack = take(&for_calls, CALL_BYTES);
    if (stack != NULL) {
        struct call *call = (struct call *)(void *)((char *)stack + CALL_BYTES - CALL_ROOM);
        call->function = function;
        call->argument = argument;
        look_for_signal_stack(call);
        own_stack_switch(call, call_there, call);
        if (call->from_signal_stack)
            signals_unblock(sigsys & ~call->before);
        put_back(&for_calls, stack);
    } else {
        function(argument);
    }
    signals_unblock(blocked);
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
    if (me->signal_stack == NULL ||
        direct_failed(direct_try(SYS_sigaltstack, 0, (long)&now, 0, 0, 0, 0)))
        return;
    if (own_stack_is_ours(me, &now) &&
        direct_failed(direct_try(SYS_sigaltstack, (long)&none, 0, 0, 0, 0, 0)))
        return;
    put_back(&for_signals, me->signal_stack);
    me->signal_stack = NULL;
}

static void forget_broken(struct stacks *stacks)
{
    if (!futex_lock_reset(&stacks->lock))
        return;
    stacks->first = NULL;
    stacks->left = 0;
}

void own_stack_forked(void)
{
    forget_broken(&for_calls);
    forget_broken(&for_signals);
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
