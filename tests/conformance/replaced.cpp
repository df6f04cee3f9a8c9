// replaced.cpp - a program that replaces only two operators. All forms without an alignment must
// call these two.
#include "conformance.h"
#include "test.h"

#include <new>

namespace
{
long made;
long gone;
const volatile std::size_t some = 100;
} // namespace

void *operator new(std::size_t size)
{
    made++;
    void *p = std::malloc(size + 16);
    if (p == nullptr)
        throw std::bad_alloc();
    return static_cast<char *>(p) + 16; // only the matching delete can free this
}

void operator delete(void *p) noexcept
{
    gone++;
    if (p != nullptr)
        std::free(static_cast<char *>(p) - 16);
}

void operator delete(void *p, std::size_t) noexcept
{
    ::operator delete(p);
}

namespace
{

TEST(every_form_calls_the_two_operators_of_the_program)
{
    ::operator delete(::operator new(some));
    CHECK(made == 1 && gone == 1);
    ::operator delete[](::operator new[](some));
    CHECK(made == 2 && gone == 2);
    ::operator delete(::operator new(some, std::nothrow), std::nothrow);
    CHECK(made == 3 && gone == 3);
    ::operator delete[](::operator new[](some, std::nothrow), std::nothrow);
    CHECK(made == 4 && gone == 4);
    ::operator delete[](::operator new[](some), some);
    CHECK(made == 5 && gone == 5);
}

TEST(nothrow_forms_catch_exceptions_of_the_program_s_operator)
{
    const volatile std::size_t huge = static_cast<std::size_t>(PTRDIFF_MAX) - 100;
    CHECK(::operator new(huge, std::nothrow) == nullptr);
    CHECK(::operator new[](huge, std::nothrow) == nullptr);
}

} // namespace

int main(int argc, char **argv)
{
    require_cairn();
    return test_main(argc, argv);
}
