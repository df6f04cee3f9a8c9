// probe_blocked_signals.cpp - threads block every signal by a direct system call and then end. Each
// frees a large block when it ends.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <sys/syscall.h>
#include <unistd.h>

struct Kept {
    char *block = nullptr;
    ~Kept()
    {
        std::free(block);
    }
};

static thread_local Kept kept;

int main()
{
    int ended = 0;
    for (int i = 0; i < 20; i++) {
        std::thread([i] {
            kept.block = static_cast<char *>(std::malloc((i + 1u) << 20));
            std::memset(kept.block, 1, 1 << 20);
            unsigned long all = ~0ul;
            syscall(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, &all, nullptr, sizeof all);
        }).join();
        ended++;
    }
    std::printf("%d ended\n", ended);
}
