"""Tests that an error names its true cause and the next step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.comparisons import a_run, a_sample
from support.fleets import a_fleet

from cairn.bench import kept_ranges
from cairn.cli import cli, options, window
from cairn.errors import CairnError, UsageError
from cairn.matrix import fleet, runs
from cairn.run import check_base, store


def refused(*words: object) -> tuple[int, str]:
    """Returns the exit code and the sentence of a command that is refused."""
    ended = CliRunner().invoke(cli, [str(word) for word in words], env={"COLUMNS": "500"})
    if isinstance(ended.exception, CairnError):
        return ended.exception.exit_code, str(ended.exception)
    return ended.exit_code, ended.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("compare", "--budget", "x"), "'x' is not a duration; write for example 90s"),
        (("compare", "--budget", "9x"), "'9x' is not a duration; write for example 90s"),
        (("soak", "--for", "x"), "'x' is not a duration; write for example 90s"),
        (("clean", "--older-than", "x"), "'x' is not a duration; write for example 90s"),
        (("compare", "--precision", "abc"), "'abc' is not a percentage; write for example 1%"),
        (("compare", "--margin", "x"), "'x' is not a percentage; write for example 1%"),
        (("compare", "--margin", "0"), "'0' must be more than 0 % and less than 100 %"),
        (("check", "--fail-if", "time>x"), "'x' is not a percentage; write for example 1%"),
        (("compare", "--warm-memory", "foo"), "'foo' is not auto, off or a size such as 512M"),
        (("compare", "--verify", "--"), "'--' is unknown; write --verify same-output"),
        (("compare", "--min-rounds", "50", "--max-rounds", "20", "-a", "system", "--", "true"),
         "--max-rounds 20 is less than --min-rounds 50; raise --max-rounds"),
        (("check", "--fail-if", "time>1%", "-a", "system", "-a", "cairn"),
         "which program? Give it after '--': -a system -a cairn -- ./prog"),
        (("check", "--fail-if", "time>1%", "-p", "./a", "-p", "./b", "--min-rounds", "50",
          "--max-rounds", "20"), "less than --min-rounds 50; raise --max-rounds"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_an_example_or_advice(
    words: Sequence[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        (tmp_path / name).symlink_to("/bin/true")
    code, sentence = refused(*words)
    assert code == 2 and says in sentence


def test_the_warm_memory_is_a_word_or_a_size() -> None:
    assert options.parse_warm("auto") is None
    assert options.parse_warm("off") == 0
    assert options.parse_warm("512M") == 512 << 20


def test_a_results_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for results in (file, file / "below"):
        with pytest.raises(UsageError, match=rf"{file} is a file, and .* one with --results"):
            store.Folder.create(results, a_run())
        with pytest.raises(UsageError, match=rf"{file} is a file, and .* one with --results"):
            a_fleet(results)
    with pytest.raises(CairnError, match=r"cannot make the folder /proc/no: .*name another one"):
        store.Folder.create(Path("/proc/no"), a_run())


def test_a_beginning_of_several_ids_names_the_newest_ones(tmp_path: Path) -> None:
    several = [tmp_path / f"2026-{number}" for number in range(7)]
    assert str(store.several_runs("2026", several)) == (
        "several runs begin with 2026: 2026-6, 2026-5, 2026-4, 2026-3, 2026-2, ...; write more of "
        "the id"
    )
    assert "2026: 2026-1, 2026-0; write" in str(store.several_runs("2026", several[:2]))


def test_one_contender_of_a_plan_is_a_usage_error_and_a_missing_library_says_so_itself(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match=r"^system alone .*; name a second allocator with -a$"):
        runs.competing(("system",), "system")
    missing = str(tmp_path / "none.so")
    with pytest.raises(CairnError) as error:
        runs.competing(("system", missing), "system")
    assert str(error.value).startswith(f"{missing}: no such file")
    with pytest.raises(CairnError, match=r"only system is here.*a\.so.*; .*b\.so"):
        runs.competing(("system", f"{tmp_path}/a.so", f"{tmp_path}/b.so"), "system")


def test_a_program_that_ends_before_the_delay_gets_advice(tmp_path: Path) -> None:
    def ended(span: window.Span) -> str:
        counting = window.Counting(span, tmp_path, None, tmp_path / "witness", lambda _: None)
        counting._started_ns = time.monotonic_ns() - 1_500_000
        with pytest.raises(CairnError, match="before counting began") as error:
            counting.finish(None)
        return str(error.value)

    told = ended(window.Span(delay=5.0))
    assert " ms, before" in told and told.endswith("; give a shorter --delay")
    assert "--delay" not in ended(window.Span(toggle=window.signal.SIGUSR1))


def test_a_damaged_run_or_base_names_the_next_step(tmp_path: Path) -> None:
    folder = store.Folder.create(tmp_path, a_run())
    path = folder.path / "run.json"
    whole = path.read_bytes()
    for content, says in (
        (b"{", r"is damaged: .*; name another run$"),
        (whole.replace(b'"seed"', b'"need"'), r"is damaged: .*; name another run$"),
        (whole.replace(b'"baseline": "', b'"baseline": "x'), r"contradict .*; name another run$"),
        (b'{"schema":99}', r"version 99, and .*; use the cairn that wrote it, or measure again$"),
    ):
        path.write_bytes(content)
        with pytest.raises(CairnError, match=says):
            store.Folder(folder.path).run()
    path.unlink()
    with pytest.raises(CairnError, match=r"has no run\.json, .*; name another run$"):
        store.Folder(folder.path).run()
    (tmp_path / "x.tar.xz").write_bytes(b"rubbish")
    with pytest.raises(CairnError, match=r"or is damaged: .*; name another run$"):
        store.find(tmp_path, f"{tmp_path}/x.tar.xz")

    base = tmp_path / "base.json"
    whole = check_base.write(check_base.of_run(a_run(), (a_sample(0, "system", 5),), ()))
    for content, says in (
        (whole.replace(b'"samples"', b'"simples"'), "; make it again with --make-base$"),
        (whole.replace(b'"wall_ns": ', b'"wall_ns": -'), "; make it again with --make-base$"),
        (whole.replace(b'"schema": ', b'"schema": 9'), "; use the cairn that wrote it, or"),
    ):
        assert content != whole
        base.write_bytes(content)
        with pytest.raises(CairnError, match=says):
            check_base.read(base)


def test_a_damaged_fleet_names_the_next_step(tmp_path: Path) -> None:
    path = a_fleet(tmp_path).path
    file = path / fleet.FLEET
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    with pytest.raises(CairnError, match=r"is damaged: .*; name another run$"):
        fleet.Fleet(path)
    file.write_bytes(whole.replace(b'"schema": ', b'"schema": 9'))
    with pytest.raises(CairnError, match=r"; use the cairn that wrote it, or measure again$"):
        fleet.Fleet(path)


def test_damaged_ranges_name_the_next_step(tmp_path: Path) -> None:
    path = tmp_path / "ranges"
    path.write_bytes(b"rubbish")
    with pytest.raises(CairnError, match=r"; make it with 'cairn matrix ranges RUN --keep FILE'$"):
        kept_ranges.read(path)
