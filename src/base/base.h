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

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_US UINT64_C(1000)

#endif
