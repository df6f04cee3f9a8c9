// path_throws.cpp COUNT - allocates and frees 64 bytes COUNT times. Then it requests 2^60 bytes,
// which fails, and does the first part again from a deeper function.
#include <cstddef>
#include <cstdlib>
#include <new>

static void *volatile kept;

__attribute__((noinline)) static void work(long count)
{
    for (long n = 0; n < count; n++) {
        kept = ::operator new(64);
        ::operator delete(kept);
    }
}

__attribute__((noinline)) static int deeper(long count)
{
    volatile char room[4096];
    room[count % 4096] = 1;
    work(count);
    return room[count % 4096];
}

int main(int, char **words)
{
    volatile std::size_t too_much = std::size_t{1} << 60;
    long count = std::atol(words[1]);
    work(count);
    try {
        kept = ::operator new(too_much);
    } catch (const std::bad_alloc &) {
        return deeper(count) + 6;
    }
    return 0;
}
