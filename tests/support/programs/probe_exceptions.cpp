// probe_exceptions.cpp N - N times makes memory requests that are too large, so that all of them
// fail. Each form of operator new is called once. Each throwing form is called once more with a new
// handler that throws an exception of its own. The program also throws and catches one exception
// that has nothing to do with memory.
#include <cstdio>
#include <cstdlib>
#include <new>

static const std::size_t TOO_MUCH = (std::size_t)1 << 60;
static const std::align_val_t ALIGNED{64};
static void *volatile sink;
static int caught, refused;

template <class Request> static void may_throw(Request request)
{
    try {
        sink = request();
    } catch (const std::bad_alloc &) {
        caught++;
    } catch (const char *) {
        caught++;
    }
}

static void all_throwing()
{
    may_throw([] { return ::operator new(TOO_MUCH); });
    may_throw([] { return ::operator new[](TOO_MUCH); });
    may_throw([] { return ::operator new(TOO_MUCH, ALIGNED); });
    may_throw([] { return ::operator new[](TOO_MUCH, ALIGNED); });
}

static void expect_none(void *block)
{
    refused += block == nullptr;
}

int main(int argc, char **argv)
{
    int times = argc > 1 ? std::atoi(argv[1]) : 1;
    for (int i = 0; i < times; i++) {
        all_throwing();
        expect_none(::operator new(TOO_MUCH, std::nothrow));
        expect_none(::operator new[](TOO_MUCH, std::nothrow));
        expect_none(::operator new(TOO_MUCH, ALIGNED, std::nothrow));
        expect_none(::operator new[](TOO_MUCH, ALIGNED, std::nothrow));
        std::set_new_handler([] { throw "no memory"; });
        all_throwing();
        std::set_new_handler(nullptr);
        try {
            throw i;
        } catch (int) {
        }
    }
    std::printf("caught %d refused %d\n", caught, refused);
    return 0;
}
