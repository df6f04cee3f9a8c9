// path_new.cpp - passes malloc and the operators on to glibc, and throws from its own operator new.
#include <cstddef>
#include <new>

extern "C" {
void *__libc_malloc(std::size_t);
void *__libc_calloc(std::size_t, std::size_t);
void *__libc_realloc(void *, std::size_t);
void __libc_free(void *);

void *malloc(std::size_t bytes)
{
    return __libc_malloc(bytes);
}

void *calloc(std::size_t count, std::size_t each)
{
    return __libc_calloc(count, each);
}

void *realloc(void *block, std::size_t bytes)
{
    return __libc_realloc(block, bytes);
}

void free(void *block)
{
    __libc_free(block);
}
}

void *operator new(std::size_t bytes)
{
    void *block = __libc_malloc(bytes);
    if (block == nullptr)
        throw std::bad_alloc();
    return block;
}

void operator delete(void *block) noexcept
{
    __libc_free(block);
}

void operator delete(void *block, std::size_t) noexcept
{
    __libc_free(block);
}
