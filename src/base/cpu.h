/* cpu.h - what a thread says to its processor while it waits for another. */
#ifndef CAIRN_CPU_H
#define CAIRN_CPU_H

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
