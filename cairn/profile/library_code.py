"""Recognises the functions of the C++ and Rust standard libraries that allocate for their callers.

The loader has inline functions of the names malloc and calloc, which call those of libc. They count
as library code, too.

A vector that grows calls `operator new` through functions of the library. A report should name the
function that uses the vector, and not these functions. So it passes over the functions of
containers, strings, smart pointers and allocators. It also passes over the functions that Rust's
compiler calls to allocate.
"""

from __future__ import annotations

import re
from functools import cache

from cairn.profile.demangle import plain

_CXX = re.compile(
    r"(operator new(\[\])?$"
    r"|_Znwm|_Znam|std::operator\+"
    r"|__gnu_cxx::(new_allocator|__alloc_traits|__allocated_ptr)\b"
    r"|std::(__cxx11::|__1::|__debug::)?("
    r"(__new_|polymorphic_)?allocator(_traits)?|__allocated_ptr|__allocate_guarded"
    r"|_?(Vector|Bvector|Deque|List|Fwd_list)_(base|impl)|vector|deque|list|forward_list|array"
    r"|_Rb_tree|map|multimap|set|multiset"
    r"|_Hashtable|__detail::_\w+|unordered_\w+|_Prime_rehash_policy|stack|queue|priority_queue"
    r"|basic_string|basic_stringbuf|to_string"
    r"|function|_Function_base|make_unique|make_shared|allocate_shared|unique_ptr"
    r"|(__)?(shared|weak)_(ptr|count)\w*|_Sp_\w+"
    r"|__uninitialized_\w+|uninitialized_\w+|_Construct|__?construct_at|construct_at|__do_uninit\w*"
    r"|back_insert_iterator|pmr::(polymorphic_allocator|memory_resource)"
    r")\b)"
)
_RUST = re.compile(
    r"(__rust_(alloc|realloc|alloc_zeroed)|__rdl_(alloc|realloc|alloc_zeroed)|__rg_(alloc|realloc)"
    r"|__rustc::__r(ust|dl)_\w+|_RNvC\w*___rustc\w*"
    r"|<*&?(mut )?(alloc|hashbrown|std::collections|std::alloc|std::sys::alloc"
    r"|core::(alloc|iter|ptr|clone|default|convert|ops::try_trait))::"
    r"|<[\w:\[\] <>,&]+ as alloc::)"
)


_LOADER = frozenset(("malloc", "calloc", "realloc", "free"))


@cache
def is_library_code(function: str) -> bool:
    """Whether the function allocates for its caller. `function` is a name with its parameters."""
    name = plain(function)
    # A name of Rust has no parameters. So a name that loses some is one of C++, which may have a
    # namespace of its own that is called "alloc".
    is_rust = name == function and _RUST.match(name)
    return name in _LOADER or bool(_CXX.match(name) or is_rust)
