/* alloc_names.h - renames the functions of C and glibc, for a program that links the allocator
 * beside its own malloc.
 *
 * A test that includes the sources of src/abi includes this header first, before any header of
 * libc. In the test's file the names then mean the allocator's functions. libc, the sanitizer and
 * the fuzzer keep the original ones. cairn.h has to be included before this header, because it uses
 * `malloc` as the name of an attribute.
 */
#ifndef CAIRN_ALLOC_NAMES_H
#define CAIRN_ALLOC_NAMES_H

#define malloc             named_malloc
#define free               named_free
#define calloc             named_calloc
#define realloc            named_realloc
#define reallocarray       named_reallocarray
#define aligned_alloc      named_aligned_alloc
#define posix_memalign     named_posix_memalign
#define malloc_usable_size named_malloc_usable_size
#define free_sized         named_free_sized
#define free_aligned_sized named_free_aligned_sized
#define memalign           named_memalign
#define valloc             named_valloc
#define pvalloc            named_pvalloc
#define cfree              named_cfree
#define mallopt            named_mallopt
#define mallinfo           named_mallinfo
#define mallinfo2          named_mallinfo2
#define malloc_info        named_malloc_info
#define malloc_stats       named_malloc_stats
#define malloc_trim        named_malloc_trim
#define __libc_malloc      named_libc_malloc
#define __libc_free        named_libc_free
#define __libc_calloc      named_libc_calloc
#define __libc_realloc     named_libc_realloc
#define __libc_memalign    named_libc_memalign
#define __libc_valloc      named_libc_valloc
#define __libc_pvalloc     named_libc_pvalloc
#define __libc_mallopt     named_libc_mallopt
#define __libc_mallinfo    named_libc_mallinfo

#endif
