"""Tests of the allocator while threads, processes and libraries begin and end."""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from .conftest import HERE, MODES, Library, Program, archive_later

in_both = pytest.mark.parametrize("mode", MODES)
SHARED = ("-shared", "-fPIC")


# --- processes ---


@archive_later
@pytest.mark.parametrize("forkers", [1, 4], ids=["one thread forks", "four fork at once"])
def test_children_of_a_process_with_busy_threads_end(
    program: Callable[..., Program], mode: str, forkers: int
) -> None:
    assert program("fork.c", mode).succeed(300, forkers) == "0 children failed\n"


@pytest.mark.long
@in_both
@pytest.mark.parametrize("forkers", [1, 8])
def test_ten_thousand_children_end(
    program: Callable[..., Program], mode: str, forkers: int
) -> None:
    assert program("fork.c", mode).succeed(10_000, forkers, timeout=1200) == "0 children failed\n"


WAYS_TO_FORK = re.findall(r'^    \{"(.+?)", ', (HERE / "forks.c").read_text(), re.MULTILINE)
"""The arguments of forks.c: the states in which it forks."""


def without_glibc_s_own_hangs(ways: Sequence[str]) -> list[str]:
    """Returns the ways under which glibc's own malloc is safe.

    A signal handler may interrupt malloc while the heap is half changed. If the handler forks,
    glibc's malloc in the child finds this heap and ends the process ("corrupted double-linked
    list"). A child of vfork() that allocates leaves such a heap to its parent. If the process has
    other threads, the child waits forever for a lock that the interrupted thread holds.
    """
    allocating = ("handler", "handler exec", "handler twice", "handler _Fork", "handler vfork")
    return [way for way in ways if way not in allocating and "handler busy" not in way]


def forks_well(run: Program, way: str, count: int, timeout: float = 120) -> None:
    said = run.succeed(way, count, timeout=timeout)
    assert re.fullmatch(r"0 of \d+ failed\n", said) and int(said.split()[2]) >= count


@in_both
@pytest.mark.parametrize("way", WAYS_TO_FORK)
def test_a_fork_hangs_in_no_state(program: Callable[..., Program], mode: str, way: str) -> None:
    """The children of a fork in a signal handler, and beside busy threads, allocate and end."""
    forks_well(program("forks.c", mode), way, 12)


@pytest.mark.long
@in_both
@pytest.mark.parametrize("way", WAYS_TO_FORK)
def test_three_hundred_runs_hang_in_no_state(
    program: Callable[..., Program], mode: str, way: str
) -> None:
    run = program("forks.c", mode)
    for _ in range(300):
        forks_well(run, way, 34)  # 10,200 forks


@pytest.mark.long
@pytest.mark.parametrize("way", without_glibc_s_own_hangs(WAYS_TO_FORK))
def test_the_same_forks_work_under_glibc(compiled_here: Callable[..., Path], way: str) -> None:
    """No child of forks.c fails under glibc's malloc.

    If one failed there, a failure under Cairn would say nothing about Cairn.
    """
    run = Program(compiled_here("forks.c", "-rdynamic"), None)
    for _ in range(300):
        forks_well(run, way, 34)


@in_both
@pytest.mark.parametrize("pattern", ["streams", "handler"])
@pytest.mark.parametrize("runs", [0, pytest.param(300, marks=pytest.mark.long)])
def test_the_forks_of_programs_in_which_allocators_hung_end(
    program: Callable[..., Program], mode: str, pattern: str, runs: int
) -> None:
    run = program("fork_patterns.c", mode)
    for _ in range(runs):
        forks_well(run, pattern, 1000)
    forks_well(run, pattern, 200)


@in_both
@pytest.mark.parametrize("what", ["large", "medium", "many", "first"])
def test_a_thread_that_gets_its_heap_at_its_end_leaves_it(
    program: Callable[..., Program], mode: str, what: str
) -> None:
    """Where many threads have a heap, a thread may need its own only in a destructor.

    A thread whose first call came from a destructor ("first") once kept its heap for ever.
    """
    assert int(program("late_births.c", mode).succeed(200, what)) <= 12


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has this trap flag")
@archive_later
@pytest.mark.parametrize("call", ["malloc", pytest.param("free", marks=pytest.mark.long)])
def test_a_handler_may_give_a_thread_its_heap_at_any_instruction_of_its_first_calls(
    program: Callable[..., Program], mode: str, call: str
) -> None:
    instructions, failed = map(int, program("stepped.c", mode).succeed(call).split())
    assert instructions > 50 and failed == 0


INTERRUPTIONS = ("fork", "twice", "_Fork", "vfork", "returns", "everything")
"""The ways in which interrupted.c forks in the signal handler."""
INTERRUPTED_CALLS = ("small", "large", "realloc", "trim", "fork", "of threads")


@pytest.mark.long
@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has this trap flag")
@in_both
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("calls", INTERRUPTED_CALLS)
@pytest.mark.parametrize("way", INTERRUPTIONS)
def test_a_fork_at_every_instruction_of_a_call_does_no_harm(
    program: Callable[..., Program], mode: str, way: str, calls: str, threads: int
) -> None:
    """A signal handler interrupts calls of the main thread once at each instruction, and forks.

    The calls are malloc, free, realloc, malloc_trim and fork. No child may fail. In the way
    "returns", the child returns from the handler and finishes the interrupted call. This works only
    if the process has no second thread.
    """
    if way == "returns" and (threads > 1 or calls == "of threads"):
        pytest.skip("the child's locks may belong to a thread that it does not have")
    if calls == "of threads" and threads == 1:
        pytest.skip("these calls make threads")
    ended = program("interrupted.c", mode)(way, calls, threads, timeout=600, CAIRN_STATS="1")
    assert ended.code == 0, ended.err
    assert re.search(r"\b0 of \d\d+ failed\n", ended.out)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has this trap flag")
@archive_later
@pytest.mark.parametrize(
    ("way", "calls"),
    [("everything", "trim"), pytest.param("vfork", "realloc", marks=pytest.mark.long)],
)
def test_a_child_at_any_instruction_may_allocate_and_ask(
    program: Callable[..., Program], mode: str, way: str, calls: str
) -> None:
    """Two of the combinations of the long test above, which take only seconds."""
    ended = program("interrupted.c", mode)(way, calls, 1, timeout=600, CAIRN_STATS="1")
    assert ended.code == 0, ended.err
    assert re.search(r"\b0 of \d\d+ failed\n", ended.out)


@pytest.mark.parametrize("background", ["0", "1"])
def test_a_program_with_the_archive_runs_under_the_preloaded_library(
    program: Callable[..., Program], hardened: Callable[..., Program], background: str
) -> None:
    """Both copies of the allocator register their fork handlers before they start a thread."""
    preload = hardened("fork.c", "preloaded").preload
    run = program("fork.c", "archive")
    for _ in range(20):
        said = run.succeed(2, 1, timeout=20, LD_PRELOAD=str(preload), CAIRN_BACKGROUND=background)
        assert said == "0 children failed\n"


def early(compiled_here: Callable[..., Path], *archive: Path) -> Program:
    """Returns early_handlers_main.c, linked with a library that registers fork handlers first."""
    library = compiled_here("early_handlers.c", *SHARED, name="libearly.so")
    path = compiled_here("early_handlers_main.c", library, *archive, f"-Wl,-rpath,{library.parent}")
    return Program(path, None)


@pytest.mark.parametrize("runs", [1, pytest.param(300, marks=pytest.mark.long)])
def test_fork_handlers_of_a_library_that_comes_before_the_archive_may_allocate(
    library: Library, compiled_here: Callable[..., Path], runs: int
) -> None:
    """The handlers are registered before a constructor of the program can run.

    They allocate, and take a lock that another thread holds while it allocates.
    """
    for run in (early(compiled_here, library.archive), early(compiled_here)):
        for _ in range(runs):
            assert run.succeed(30, "beside") == "0 of 30 failed\n"
            assert run.succeed(10, "alone") == "0 of 10 failed\n"


def test_fork_handlers_registered_before_ours_may_allocate(
    program: Callable[..., Program], compiled_here: Callable[..., Path], library: Library
) -> None:
    """The allocator registers its fork handlers first, because the loader initialises it first.

    So the allocator's handlers run last before a fork and first after a fork. No other handler runs
    while the allocator's locks are held. This must hold for both orders of the preloaded libraries.
    """
    handlers = compiled_here("handlers.c", *SHARED)
    run = program("fork.c", "preloaded")
    for both in (f"{library.shared} {handlers}", f"{handlers} {library.shared}"):
        under = ["env", f"LD_PRELOAD={both}"]
        assert Program(run.path, None).succeed(40, 1, under=under) == "0 children failed\n"


@in_both
def test_programs_can_be_started_in_every_way_while_threads_allocate(
    program: Callable[..., Program], mode: str
) -> None:
    assert program("spawn.c", mode).succeed(25) == "0 failed\n"


@pytest.mark.skipif(not shutil.which("php"), reason="php is not here")
def test_php_starts_and_works(library: Library) -> None:
    """PHP opens its extensions with RTLD_DEEPBIND.

    With this flag, the extensions would call libc's malloc, so Cairn's dlopen drops the flag.
    """
    php = Program(Path(shutil.which("php") or ""), library.shared)
    said = php.succeed(
        "-r",
        "$a = []; for ($i = 0; $i < 100000; $i++) $a[] = str_repeat('x', $i % 99); echo count($a);",
    )
    assert said == "100000"


def test_an_auditor_does_no_harm(
    program: Callable[..., Program], compiled_here: Callable[..., Path]
) -> None:
    """An auditing library (LD_AUDIT) has its own libc, which starts before the program's libc."""
    program("early.c", "preloaded").succeed(LD_AUDIT=str(compiled_here("auditor.c", *SHARED)))


# --- threads ---


@in_both
@pytest.mark.parametrize("count", [8_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_memory_stays_flat_over_many_short_threads(
    program: Callable[..., Program], mode: str, count: int
) -> None:
    """The program's threads return, exit or are cancelled. Their destructors allocate.

    Some blocks outlive their threads. The resident memory depends on how many threads live at once:
    it is 4 to 9 MB. If each ended thread left one OS page behind, at least 26 MB would be added
    (4 KB for each of the last 6,400 threads).
    """
    early, late = map(int, program("threads.c", mode).succeed(count, timeout=900).split())
    assert late <= early + 6144, (
        f"{early} KB resident after a fifth of the threads, {late} after all"
    )


# --- libraries ---


@pytest.mark.parametrize("deep", [(), ("deep",)], ids=["plain", "RTLD_DEEPBIND"])
def test_a_plugin_comes_and_goes(
    program: Callable[..., Program], compiled_here: Callable[..., Path], deep: tuple[str, ...]
) -> None:
    """With RTLD_DEEPBIND, the plugin would free Cairn's blocks with libc's free.

    Cairn's dlopen therefore drops this flag. Debian's php opens its extensions with this flag, and
    crashes with every other preloaded allocator.
    """
    plugin = compiled_here("plugin.c", *SHARED)
    host = program("host.c", "preloaded")
    assert host.succeed(*deep, 60, plugin, "shared") == "closed\n"


def test_deepbind_is_kept_if_the_user_asks_for_it(
    program: Callable[..., Program], compiled_here: Callable[..., Path]
) -> None:
    plugin = compiled_here("plugin.c", *SHARED)
    ended = program("host.c", "preloaded")("deep", 1, plugin, "shared", CAIRN_KEEP_DEEPBIND="1")
    assert ended.code < 0, "libc's free must end the program when it gets a block of Cairn"


@pytest.mark.parametrize(
    "flags", [("-DWITH_CAIRN_ITSELF",), ("-Wl,-Bsymbolic",)], ids=["own names", "own malloc"]
)
@pytest.mark.parametrize(
    "preloaded", [False, True], ids=["beside libc", "beside the preloaded one"]
)
def test_two_libraries_with_the_archive_within_live_in_one_process(
    library: Library,
    compiled_here: Callable[..., Path],
    tmp_path: Path,
    flags: tuple[str, ...],
    preloaded: bool,
) -> None:
    """Each library contains its own copy of the allocator, and the program opens and closes it.

    Threads that used a library end after the program has closed it. Then the program forks.
    """
    first = compiled_here("plugin.c", *flags, library.archive, *SHARED)
    second = tmp_path / "second.so"
    shutil.copy(first, second)
    host = Program(compiled_here("host.c"), library.shared if preloaded else None)
    assert host.succeed(40, first, second) == "closed\n"


@pytest.mark.parametrize("settings", [{}, {"CAIRN_BACKGROUND": "1"}], ids=["plain", "background"])
def test_a_library_may_wait_for_a_thread_while_it_is_loaded(
    program: Callable[..., Program], compiled_here: Callable[..., Path], settings: dict[str, str]
) -> None:
    """The loader holds its lock meanwhile, so neither malloc nor pthread_atfork may call dlsym."""
    plugin = compiled_here("waits_at_load.c", *SHARED)
    program("opens.c", "preloaded").succeed(plugin, timeout=60, **settings)


def test_the_caller_s_runpath_holds_through_our_dlopen(
    library: Library, compiled_here: Callable[..., Path], tmp_path: Path
) -> None:
    """The dlopen of libc searches the RUNPATH of the library that contains its return address.

    So Cairn's dlopen must end with a jump to libc's dlopen. The return address then still lies in
    the library that called dlopen.
    """
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    inner = compiled_here("plugin.c", *SHARED)
    shutil.copy(inner, shelf / "libinner.so")
    opener = compiled_here(
        "opener.c",
        *SHARED,
        "-Wl,-rpath,$ORIGIN/shelf",
        "-Wl,-soname,libopener.so",
        name="libopener.so",
    )
    shutil.copy(opener, tmp_path / "libopener.so")
    caller = compiled_here("calls_opener.c", opener, "-Wl,-rpath,$ORIGIN")
    shutil.copy(caller, tmp_path / "caller")
    for preload in (None, library.shared):
        run = Program(tmp_path / "caller", preload)
        run.succeed("libinner.so")
        assert run("libelsewhere.so").code == 1
