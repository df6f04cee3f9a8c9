/* vfork.c - a vfork() whose child does not use the heap of the thread that called it.
 *
 * The child of vfork() shares the memory of its parent, and the thread-local variables of the
 * thread that called it. In a signal handler that interrupted malloc or free, a child that
 * allocates would change a list while the interrupted call is still reading it. So the child gets
 * the heap that is always empty (thread.h), and counts as a thread that holds a lock (os/lock.h).
 * It takes memory from emergency.h, and frees no block of its parent that would need a lock. When
 * the child has called exec() or _exit(), the parent takes back its heap.
 *
 * The function returns twice on one stack. Therefore it keeps all that the parent needs in
 * registers, which the kernel restores. The return address is one of them. C cannot express this,
 * so the function is written in assembly.
 *
 * On other processors, libc's function is used. The children of clone(CLONE_VM), system() and
 * posix_spawn() do not come here. This is safe for system() and posix_spawn(), whose children do
 * not allocate.
 *
 * The definition is weak, because a static program has libc's definition, too. */
#include "abi/abi.h"

#include <sys/syscall.h>
#include <sys/types.h>

#if defined(__x86_64__) || defined(__aarch64__)

/* Called by vfork() if the kernel refuses. */
pid_t vfork_refused(long error) __attribute__((visibility("hidden"), used));

pid_t vfork_refused(long error)
{
    errno = (int)-error;
    return -1;
}

#endif

#ifdef __x86_64__
_Static_assert(SYS_vfork == 58, "the number in the code below");
__asm__(".text\n"
        ".weak vfork\n"
        ".type vfork, @function\n"
        "vfork:\n"
        ".cfi_startproc\n"
        "    movq thread_heap@gottpoff(%rip), %rdx\n"
        "    movq lock_count@gottpoff(%rip), %r8\n"
        "    leaq heap_gone(%rip), %r9\n"
        "    movq %fs:(%rdx), %rsi\n" /* the parent's heap */
        "    incl %fs:(%r8)\n"
        "    movq %r9, %fs:(%rdx)\n"
        "    popq %rdi\n" /* the child writes over the return address */
        ".cfi_adjust_cfa_offset -8\n"
        ".cfi_register %rip, %rdi\n"
        "    movl $58, %eax\n"
        "    syscall\n"
        "    pushq %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        ".cfi_offset %rip, -8\n"
        "    testq %rax, %rax\n"
        "    jz 1f\n" /* the child */
        "    movq %rsi, %fs:(%rdx)\n"
        "    decl %fs:(%r8)\n"
        "    cmpq $-4095, %rax\n"
        "    jae 2f\n"
        "1:  ret\n"
        "2:  movq %rax, %rdi\n"
        "    jmp vfork_refused\n"
        ".cfi_endproc\n"
        ".size vfork, . - vfork\n");
#endif

#ifdef __aarch64__
_Static_assert(SYS_clone == 220, "the number in the code below");
__asm__(".text\n"
        ".weak vfork\n"
        ".type vfork, @function\n"
        "vfork:\n"
        ".cfi_startproc\n"
        "    mrs x9, tpidr_el0\n"
        "    adrp x10, :gottprel:thread_heap\n"
        "    ldr x10, [x10, #:gottprel_lo12:thread_heap]\n"
        "    add x10, x9, x10\n"
        "    adrp x11, :gottprel:lock_count\n"
        "    ldr x11, [x11, #:gottprel_lo12:lock_count]\n"
        "    add x11, x9, x11\n"
        "    adrp x12, heap_gone\n"
        "    add x12, x12, #:lo12:heap_gone\n"
        "    ldr x13, [x10]\n" /* the parent's heap */
        "    ldr w14, [x11]\n"
        "    add w15, w14, #1\n"
        "    str w15, [x11]\n"
        "    str x12, [x10]\n"
        "    mov x0, #0x4111\n" /* CLONE_VM | CLONE_VFORK | SIGCHLD */
        "    mov x1, #0\n"      /* the same stack */
        "    mov x2, #0\n"
        "    mov x3, #0\n"
        "    mov x4, #0\n"
        "    mov x8, #220\n"
        "    svc #0\n"
        "    cbz x0, 1f\n" /* the child */
        "    str x13, [x10]\n"
        "    str w14, [x11]\n"
        "    cmn x0, #4095\n"
        "    b.cs vfork_refused\n"
        "1:  ret\n"
        ".cfi_endproc\n"
        ".size vfork, . - vfork\n");
#endif
