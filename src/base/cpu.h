/* cpu.h - a hint to the processor that the thread waits in a loop, and the stack pointer. */
#ifndef CAIRN_CPU_H
#define CAIRN_CPU_H

#include <stdint.h>

/* The stack pointer of the function that reads this variable. The stack frames of functions that it
 * calls from there lie below this address. */
#if defined(__x86_64__)
register uintptr_t cpu_stack __asm__("rsp");
#elif defined(__aarch64__) || defined(__riscv)
register uintptr_t cpu_stack __asm__("sp");
#endif

/* Called in a loop that waits for another thread. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#elif defined(__riscv)
    __asm__ volatile(".4byte 0x0100000f"); /* PAUSE; processors without it do nothing */
#endif
}

#endif
