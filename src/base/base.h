/* base.h - macros and constants for all C files of the project. */
#ifndef CAIRN_BASE_H
#define CAIRN_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Tells the compiler that `x` is true, which the caller guarantees. If `x` is false, anything may
 * happen. */
#define ASSUME(x) ((x) ? (void)0 : __builtin_unreachable())

/* Reads an atomic variable with relaxed order. The compiler can make the read part of another
 * instruction, which gcc never does with atomic_load_explicit(). So it may read the variable more
 * often than the source says: use the value once. The thread sanitizer sees an atomic read. */
#ifdef __has_feature
#define BASE_HAS_FEATURE(feature) __has_feature(feature)
#else
#define BASE_HAS_FEATURE(feature) 0
#endif
#if defined __SANITIZE_THREAD__ || BASE_HAS_FEATURE(thread_sanitizer)
#define PEEK(variable) atomic_load_explicit(&(variable), memory_order_relaxed)
#else
#define PEEK(variable) (*(const __typeof__(((void)0, (variable))) *)&(variable))
#endif

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_US UINT64_C(1000)

#endif
