// cxx_plugin.cpp - a C++ plugin for a C program. The loader loads the C++ runtime together with the
// plugin, with local symbols: no other library can use the runtime's symbols.
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

// Returns 1 if operator new called the new-handler until the handler removed itself, and then threw
// a bad_alloc that this function caught.
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
