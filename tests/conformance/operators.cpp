// operators.cpp - tests C++'s operators new and delete. Every form of new returns an aligned block.
// Without memory it calls the new-handler until the handler removes itself, and then throws
// bad_alloc or returns null.
#include "conformance.h"
#include "test.h"

#include <limits>
#include <new>
#include <sys/resource.h>
#include <sys/wait.h>
#include <vector>

namespace
{

const volatile std::size_t huge =
    static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) - 100;
const std::align_val_t at64{64};
const std::align_val_t at4096{4096};

struct form {
    const char *name;
    void *(*take)(std::size_t);
    void (*give)(void *, std::size_t);
    std::size_t alignment;
    bool throws;
};

const form forms[] = {
    {"new", [](std::size_t n) { return ::operator new(n); },
     [](void *p, std::size_t) { ::operator delete(p); }, 16, true},
    {"new, sized", [](std::size_t n) { return ::operator new(n); },
     [](void *p, std::size_t n) { ::operator delete(p, n); }, 16, true},
    {"new[]", [](std::size_t n) { return ::operator new[](n); },
     [](void *p, std::size_t) { ::operator delete[](p); }, 16, true},
    {"new[], sized", [](std::size_t n) { return ::operator new[](n); },
     [](void *p, std::size_t n) { ::operator delete[](p, n); }, 16, true},
    {"new, nothrow", [](std::size_t n) { return ::operator new(n, std::nothrow); },
     [](void *p, std::size_t) { ::operator delete(p, std::nothrow); }, 16, false},
    {"new[], nothrow", [](std::size_t n) { return ::operator new[](n, std::nothrow); },
     [](void *p, std::size_t) { ::operator delete[](p, std::nothrow); }, 16, false},
    {"new, aligned", [](std::size_t n) { return ::operator new(n, at64); },
     [](void *p, std::size_t) { ::operator delete(p, at64); }, 64, true},
    {"new, aligned, sized", [](std::size_t n) { return ::operator new(n, at4096); },
     [](void *p, std::size_t n) { ::operator delete(p, n, at4096); }, 4096, true},
    {"new[], aligned", [](std::size_t n) { return ::operator new[](n, at64); },
     [](void *p, std::size_t) { ::operator delete[](p, at64); }, 64, true},
    {"new[], aligned, sized", [](std::size_t n) { return ::operator new[](n, at4096); },
     [](void *p, std::size_t n) { ::operator delete[](p, n, at4096); }, 4096, true},
    {"new, aligned, nothrow", [](std::size_t n) { return ::operator new(n, at64, std::nothrow); },
     [](void *p, std::size_t) { ::operator delete(p, at64, std::nothrow); }, 64, false},
    {"new[], aligned, nothrow",
     [](std::size_t n) { return ::operator new[](n, at64, std::nothrow); },
     [](void *p, std::size_t) { ::operator delete[](p, at64, std::nothrow); }, 64, false},
};

int handler_calls;

void gives_up_at_the_third()
{
    if (++handler_calls == 3)
        std::set_new_handler(nullptr);
}

void throws_bad_alloc()
{
    handler_calls++;
    throw std::bad_alloc();
}

struct own_error {};

void throws_its_own()
{
    handler_calls++;
    throw own_error();
}

enum class came { block, null, bad_alloc, own };

came of(const form &form, std::size_t size)
{
    try {
        void *p = form.take(size);
        if (p == nullptr)
            return came::null;
        form.give(p, size);
        return came::block;
    } catch (const std::bad_alloc &) {
        return came::bad_alloc;
    } catch (const own_error &) {
        return came::own;
    }
}

TEST(every_form_returns_disjoint_and_aligned_blocks)
{
    for (const form &form : forms)
        for (std::size_t size = 0; size < 300000; size = size * 2 + 1) {
            auto *p = static_cast<unsigned char *>(form.take(size));
            auto *q = static_cast<unsigned char *>(form.take(size));
            CHECK(p != nullptr && q != nullptr && p != q);
            CHECK(reinterpret_cast<uintptr_t>(p) % form.alignment == 0);
            CHECK(malloc_usable_size(p) >= size);
            memset(p, 1, size);
            memset(q, 2, size);
            CHECK(size == 0 || (p[0] == 1 && p[size - 1] == 1));
            form.give(p, size);
            form.give(q, size);
            form.give(nullptr, size);
        }
}

TEST(deleted_memory_is_handed_out_again)
{
    for (const form &form : forms) {
        const std::size_t live = live_bytes();
        for (int i = 0; i < 1000; i++)
            form.give(form.take(5000), 5000);
        CHECK(live_bytes() == live);
    }
}

TEST(without_a_handler_the_throwing_forms_throw_and_the_others_return_null)
{
    std::set_new_handler(nullptr);
    for (const form &form : forms)
        CHECK(of(form, huge) == (form.throws ? came::bad_alloc : came::null));
}

TEST(the_handler_is_called_until_it_gives_up)
{
    for (const form &form : forms) {
        handler_calls = 0;
        std::set_new_handler(gives_up_at_the_third);
        CHECK(of(form, huge) == (form.throws ? came::bad_alloc : came::null));
        CHECK(handler_calls == 3);
    }
}

TEST(bad_alloc_from_the_handler_becomes_null_in_forms_that_do_not_throw)
{
    for (const form &form : forms) {
        handler_calls = 0;
        std::set_new_handler(throws_bad_alloc);
        CHECK(of(form, huge) == (form.throws ? came::bad_alloc : came::null));
        CHECK(handler_calls == 1);
    }
    std::set_new_handler(nullptr);
}

TEST(other_exceptions_of_the_handler_pass_through)
{
    for (const form &form : forms)
        if (form.throws) {
            handler_calls = 0;
            std::set_new_handler(throws_its_own);
            CHECK(of(form, huge) == came::own && handler_calls == 1);
        }
    std::set_new_handler(nullptr);
}

TEST(an_alignment_that_is_no_power_of_two_is_bad_alloc)
{
    bool thrown = false;
    try {
        ::operator delete(::operator new(100, std::align_val_t{48}), std::align_val_t{48});
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown);
    CHECK(::operator new(100, std::align_val_t{48}, std::nothrow) == nullptr);
}

void *reserve;

void gives_back_its_reserve()
{
    handler_calls++;
    ::operator delete(reserve);
    reserve = nullptr;
    std::set_new_handler(nullptr);
}

// Runs in a child process, because the process cannot raise the limit again. Returns 0 if operator
// new called the handler once, and the memory that the handler freed was enough for new blocks.
int with_a_reserve()
{
    const rlimit limit{std::size_t{512} << 20, std::size_t{512} << 20};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 1;
    reserve = ::operator new(std::size_t{64} << 20);
    std::vector<void *> taken;
    taken.reserve(1000000);
    handler_calls = 0;
    std::set_new_handler(gives_back_its_reserve);
    try {
        while (taken.size() < taken.capacity())
            taken.push_back(::operator new(1 << 20));
    } catch (const std::bad_alloc &) {
        return handler_calls == 1 && taken.size() > 300 ? 0 : 2;
    }
    return 3;
}

TEST(a_handler_that_frees_memory_lets_new_succeed)
{
    fflush(nullptr);
    const pid_t pid = fork();
    if (pid == 0)
        _exit(with_a_reserve());
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

TEST(too_many_elements_are_refused_by_the_compiler_s_check)
{
    const volatile std::size_t count = std::numeric_limits<std::size_t>::max() / 2;
    bool thrown = false;
    try {
        delete[] new double[count];
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown);
}

} // namespace

int main(int argc, char **argv)
{
    require_cairn();
    return test_main(argc, argv);
}
