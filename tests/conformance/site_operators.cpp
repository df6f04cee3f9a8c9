// site_operators.cpp - has one function for each form of C++'s operator new. Each function is the
// call site of one large block.
#include "conformance.h"

#include <new>

namespace
{

void *volatile kept;
volatile std::size_t large = 100000;
const std::align_val_t aligned{64};

} // namespace

extern "C" {

__attribute__((noinline)) void by_new()
{
    kept = ::operator new(large);
}

__attribute__((noinline)) void by_new_array()
{
    kept = ::operator new[](large);
}

__attribute__((noinline)) void by_new_nothrow()
{
    kept = ::operator new(large, std::nothrow);
}

__attribute__((noinline)) void by_new_array_nothrow()
{
    kept = ::operator new[](large, std::nothrow);
}

__attribute__((noinline)) void by_new_aligned()
{
    kept = ::operator new(large, aligned);
}

__attribute__((noinline)) void by_new_array_aligned()
{
    kept = ::operator new[](large, aligned);
}

__attribute__((noinline)) void by_new_aligned_nothrow()
{
    kept = ::operator new(large, aligned, std::nothrow);
}
}

int main()
{
    require_cairn();
    by_new();
    by_new_array();
    by_new_nothrow();
    by_new_array_nothrow();
    by_new_aligned();
    by_new_array_aligned();
    by_new_aligned_nothrow();
    return 0;
}
