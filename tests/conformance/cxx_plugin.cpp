// cxx_plugin.cpp - a C++ plugin for a C program. It brings the C++ runtime into the process, with
// local symbols.
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

// Returns 1 if operator new called its handler until that gave up, threw bad_alloc, and the
// exception was caught here.
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
