// probe_operators.cpp - calls every kind of operator new and delete a thousand times, and makes
// 50 requests that throw bad_alloc.
#include <cstdio>
#include <new>

struct alignas(64) Aligned {
    char bytes[100];
};

static void *volatile sink;

int main()
{
    int caught = 0;
    for (int i = 0; i < 50; i++) {
        try {
            sink = ::operator new((std::size_t)1 << 60);
        } catch (const std::bad_alloc &) {
            caught++;
        }
    }
    for (int i = 0; i < 1000; i++) {
        delete new int(3);
        delete new Aligned;
        delete[] new double[10];
        sink = new (std::nothrow) char[(std::size_t)1 << 60];
        if (sink != nullptr)
            return 1;
    }
    std::printf("caught %d\n", caught);
    return 0;
}
