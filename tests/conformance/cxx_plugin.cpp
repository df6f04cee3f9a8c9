// A plugin in C++ for a program in C: brings the runtime with it, and keeps it to itself.
#include <cstddef>
#include <limits>
#include <new>

namespace
{
int calls;

void handler()
{
    if (++calls == 2)
        std::set_new_handler(nullptr);
}
} // namespace

// 1: bad_alloc was thrown, and caught here; the handler was called until it gave up.
extern "C" int plugin_fails_well()
{
    const volatile std::size_t huge =
        static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) - 100;
    std::set_new_handler(handler);
    bool caught = false;
    try {
        ::operator delete(::operator new(huge));
    } catch (const std::bad_alloc &) {
        caught = true;
    }
    return caught && calls == 2 && ::operator new(huge, std::nothrow) == nullptr;
}
