#include "probe/preemption.h"

#if defined(__x86_64__) && __has_include(<sys/rseq.h>)

/* A restartable sequence of one byte that no thread ever runs. The kernel checks each sequence that
 * a thread announces, and kills the thread if the sequence is malformed. Two rules hold: glibc's
 * signature must stand before the abort address, and the abort address must lie outside the
 * sequence. */
__asm__(".pushsection .text\n"
        ".globl preemption_nowhere, preemption_abort\n"
        ".hidden preemption_nowhere, preemption_abort\n"
        "preemption_nowhere:\n"
        "  ud2\n"
        "  .long 0x53053053\n"
        "preemption_abort:\n"
        "  ud2\n"
        ".popsection\n");

extern const char preemption_nowhere[] __attribute__((visibility("hidden")));
extern const char preemption_abort[] __attribute__((visibility("hidden")));

struct rseq_cs preemption_sequence __attribute__((aligned(32), visibility("hidden"))) = {
    .start_ip = (uintptr_t)preemption_nowhere,
    .post_commit_offset = 1,
    .abort_ip = (uintptr_t)preemption_abort,
};

#endif
