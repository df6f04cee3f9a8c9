"""Tests of Rust's names, with symbols of RFC 2603, of rustc-demangle and of a compiled program."""

from __future__ import annotations

import random

import pytest

from cairn.profile.demangle import demangled, without_arguments
from cairn.profile.rust_names import rust_name

KNOWN = {
    # RFC 2603, and the tests of rustc-demangle
    "_RNvC6_123foo3bar": "123foo::bar",
    "_RNqCs4fqI2P2rA04_11utf8_identsu30____7hkackfecea1cbdathfdh9hlq6y": (
        "utf8_idents::საჭმელად_გემრიელი_სადილი"
    ),
    "_RNCNCNgCs6DXkGYLi8lr_2cc5spawn00B5_": "cc::spawn::{closure#0}::{closure#0}",
    "_RNCINkXs25_NgCsbmNqQUJIY6D_4core5sliceINyB9_4IterhENuNgNoBb_4iter8iterator8Iterator"
    "9rpositionNCNgNpB9_6memchr7memrchrs_0E0Bb_": (
        "<core::slice::Iter<u8> as core::iter::iterator::Iterator>::rposition::"
        "<core::slice::memchr::memrchr::{closure#1}>::{closure#0}"
    ),
    "_RINbNbCskIICzLVDPPb_5alloc5alloc8box_freeDINbNiB4_5boxed5FnBoxuEp6OutputuEL_E"
    "Cs1iopQbuBiw2_3std": "alloc::alloc::box_free::<dyn alloc::boxed::FnBox<(), Output = ()>>",
    "_RMCs4fqI2P2rA04_13const_genericINtB0_8UnsignedKhb_E": "<const_generic::Unsigned<11>>",
    "_RMs_Cs4fqI2P2rA04_13const_genericINtB2_6SignedKsn98_E": "<const_generic::Signed<-152>>",
    "_RMs1_Cs4fqI2P2rA04_13const_genericINtB3_4BoolKb0_E": "<const_generic::Bool<false>>",
    "_RMs2_Cs4fqI2P2rA04_13const_genericINtB3_4CharKc2202_E": "<const_generic::Char<'∂'>>",
    # a program, compiled by rustc 1.95
    "_RNvMCs6GmmlP4bgsG_1rINtB2_4NodeyE4growB2_": "<r::Node<u64>>::grow",
    "_RNvXs1h_NtCsgEmfK2I1SDS_4core3fmtQShNtB6_5Debug3fmtCsgY6Mt91CT9J_14rustc_demangle": (
        "<&mut [u8] as core::fmt::Debug>::fmt"
    ),
    "_RINvNtCsgEmfK2I1SDS_4core3ptr13drop_in_placeTjNtNtNtNtCsjrHSEGnQ3l9_3std12backtrace_rs"
    "9symbolize5gimli7MappingEEBQ_": (
        "core::ptr::drop_in_place::<(usize, std::backtrace_rs::symbolize::gimli::Mapping)>"
    ),
    "_RNvNtNtNtNtNtCsjrHSEGnQ3l9_3std3sys3pal4unix14stack_overflow11thread_info11THREAD_INFO.2": (
        "std::sys::pal::unix::stack_overflow::thread_info::THREAD_INFO"
    ),
    "_RNvCsfLfy6EI15iL_7___rustc13___rdl_dealloc": "__rustc::__rdl_dealloc",
    # the legacy form
    "_ZN4core3fmt5write17h0123456789abcdefE": "core::fmt::write",
    "_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar"
    "17h930b740aa94f1d3aE": "<Test + 'static as foo::Bar<Test>>::bar",
    "_ZN4main3foo17h05af221e174051e9E.llvm.1234": "main::foo",
    "_ZN5prog_4main28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE": "prog_::main::{{closure}}",
}


@pytest.mark.parametrize(("symbol", "name"), KNOWN.items())
def test_symbols_of_rust_have_their_names(symbol: str, name: str) -> None:
    assert rust_name(symbol) == name
    assert demangled(symbol) == name


@pytest.mark.parametrize(
    "symbol",
    [
        *("main", "_ZN6Parser4nodeEi", "_ZN4core3fmt5writeE", "_R", "_RX", "_RNvB_1a", "_RNvC1"),
        *("_RIC1aB_E", "_RNvC1a1bX", "_RC9999a", f"_R{'NvC1a1b' * 500}"),
        f"_RM{'S' * 1000}u",  # types that never end
    ],
)
def test_other_symbols_are_refused(symbol: str) -> None:
    assert rust_name(symbol) is None


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("<prog::Tree<u64>>::grow", "<prog::Tree<…>>::grow"),
        ("<alloc::vec::Vec<u8> as std::io::Write>::flush",) * 2,
        ("<a::B<C> as d::E<F>>::g::<H>", "<a::B<…> as d::E<…>>::g::<…>"),
        ("<<a::B<C>>::d as e>::f", "<<a::B<…>>::d as e>::f"),
        ("<a", "<a"),
    ],
)
def test_the_type_of_a_method_stays_in_a_short_name(name: str, short: str) -> None:
    if short == name:
        short = name.replace("<u8>", "<…>")
    assert without_arguments(name) == short


def test_a_forged_name_of_many_brackets_is_shortened() -> None:
    for name in ("<" * 5000, "<a>" * 2000, "<" * 2000 + ">" * 2000):
        assert len(without_arguments(name)) <= len(name)


def test_a_short_symbol_cannot_make_an_endless_name() -> None:
    # Each pair holds the pair before it twice, so that the name would double 40 times.
    text, start = "IC1a", 4
    for _ in range(40):
        here = len(text)
        text += f"TB{_base_62(start)}B{_base_62(start)}E" if here > start else "TuuE"
        start = here
    assert rust_name(f"_R{text}E") is None


def _base_62(number: int) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    number -= 1
    text = ""
    while True:
        text = digits[number % 62] + text
        number //= 62
        if number == 0:
            return text + "_"


def test_random_symbols_end_with_a_name_or_none() -> None:
    lots = random.Random(3)
    for symbol in KNOWN:
        for _ in range(100):
            letters = list(symbol)
            for _ in range(lots.randrange(1, 4)):
                letters[lots.randrange(2, len(letters))] = lots.choice("0123_BCENITRSMXYvsu$.E")
            name = rust_name("".join(letters))
            assert name is None or len(name) < 5000
