/* cpu.h - what no language has: to say to the processor that one waits, and to ask where the stack is. */
#ifndef CAIRN_CPU_H
#define CAIRN_CPU_H

#include <stdint.h>

/* Where the stack of the function that reads it ends at that point: what is called from there lies below. */
#if defined(__x86_64__)
register uintptr_t cpu_stack __asm__("rsp");
#elif defined(__aarch64__)
register uintptr_t cpu_stack __asm__("sp");
#endif

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
