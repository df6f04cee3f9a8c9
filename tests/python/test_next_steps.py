"""Tests that an error names its true cause and the next step."""

from __future__ import annotations

import io
import lzma
import random
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest
import rich_click
from click.testing import CliRunner
from msgspec.structs import replace
from rich.console import Console
from support.comparisons import a_run, a_sample
from support.fleets import a_fleet

from cairn.bench import kept_ranges
from cairn.cli import cli, measurement, options, progress, window
from cairn.cli.root_command import every_command
from cairn.errors import CairnError, UsageError
from cairn.gate import Gate, GateBound
from cairn.matrix import fleet, runs
from cairn.model import INTERRUPTED, Contender, Run, Sample, StopRule, Trial
from cairn.report.run import Measured, comparisons
from cairn.run import builds, check_base, measure, runner, store
from cairn.run.stored_run import RunRefusal


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


def test_the_time_until_the_programs_end_leaves_out_the_reading(tmp_path: Path) -> None:
    """The sentence once gave the time at which Cairn had read all files of the profile."""
    counting = window.Counting(
        window.Span(delay=60.0), tmp_path, None, tmp_path / "witness", lambda _: None
    )
    with counting:
        time.sleep(0.02)
    ended_ns = time.monotonic_ns() - counting._started_ns
    time.sleep(0.3)
    with pytest.raises(CairnError) as error:
        counting.finish(None)
    told = re.search(r"after ([0-9.]+) ms, before", str(error.value))
    assert told is not None and 20 <= float(told[1]) <= ended_ns / 1e6 + 1


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
    (tmp_path / "x.tar.xz").write_bytes(lzma.compress(b"rubbish")[:-9])
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


def commands(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    """Yields the words of every command that is no group of others."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *above, name)
        else:
            yield (*above, name)


def helped(*words: str) -> str:
    told = CliRunner().invoke(cli, [*words, "--help"], env={"COLUMNS": "200"})
    assert told.exit_code == 0, told.output
    return told.output


@pytest.mark.parametrize("words", list(commands(every_command())), ids="-".join)
def test_the_help_of_every_command_names_its_exit_codes_and_shows_no_choice_in_brackets(
    words: tuple[str, ...],
) -> None:
    text = helped(*words)
    assert "Exit codes: " in text
    for line in text.splitlines():
        if "--" in line:
            assert not re.search(r"\[\w+(\|\w+)+\]|AUTO|INTEGER", line), line


@pytest.mark.parametrize("name", list(rich_click.rich_click.OPTION_GROUPS))
def test_every_option_of_a_command_with_groups_is_in_one_of_them(name: str) -> None:
    command = every_command().commands[name.removeprefix("cairn ")]
    grouped = [
        option for group in rich_click.rich_click.OPTION_GROUPS[name] for option in group["options"]
    ]
    options_of = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    assert len(grouped) == len(options_of)
    shown = helped(*name.removeprefix("cairn ").split())
    titles = re.findall(r"^╭─ (.+?) ─*╮$", shown, re.MULTILINE)
    assert titles and all(re.fullmatch("[A-Z][a-z]*( [a-z]+)*", title) for title in titles), titles
    assert [one.opts for one in options_of if not set(one.opts) & set(grouped)] == []


def test_rounds_have_two_names_in_the_commands_that_measure() -> None:
    for words in (("compare",), ("check",), ("bench",)):
        for name in ("-r", "--runs", "--rounds"):
            assert "'x0' is not a valid integer" in refused(*words, name, "x0")[1]
        assert "--rounds" not in helped(*words)
    for words in (("soak",), ("matrix", "run"), ("matrix", "check")):
        for name in ("-r", "--rounds", "--runs"):
            assert "'x0' is not a valid integer" in refused(*words, name, "x0", "p")[1]
    for name in ("-r", "--runs"):
        assert "'x0' is not a valid integer" in refused("profile", name, "x0", "p")[1]
    code, sentence = refused("compare", "--rounds", "3", "--max-rounds", "5", "-a", "system", "-c",
                             "true")  # fmt: skip
    assert code == 2 and sentence == "-r runs exactly 3 rounds; leave out --max-rounds"


def test_a_file_that_is_no_run_and_one_that_is_missing_are_usage_errors(tmp_path: Path) -> None:
    for content in (b"", b"rubbish"):
        (tmp_path / "file").write_bytes(content)
        code, sentence = refused("report", tmp_path / "file", "--results", tmp_path)
        assert code == 2 and "file is not a run; a run is a folder" in sentence
    with pytest.raises(UsageError, match=r"there is no file .*none; make it with"):
        kept_ranges.read(tmp_path / "none")


def test_a_run_that_is_not_of_a_plan_is_called_by_its_id_or_path(tmp_path: Path) -> None:
    run = replace(a_run(), id="20260101-000000-abcd")
    path = store.Folder.create(tmp_path, run).path
    for words in (("report",), ("status",), ("ranges",)):
        code, sentence = refused("matrix", *words, "last", "--results", tmp_path)
        assert (code, sentence) == (
            2,
            f"{path} is not a run of a plan; 'cairn report {path}' shows it",
        )
    newer = a_fleet(tmp_path / "fleets")
    code, sentence = refused("matrix", "ranges", "last", "--results", tmp_path / "fleets")
    assert code == 2 and f"{newer.path.name} is a run on several machines" in sentence


def test_a_parameter_in_the_words_of_a_program_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program was once given "{n}" as it is, in both workloads."""
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        (tmp_path / name).symlink_to("/bin/true")
    for first, second in (("./a {n}", "./b {n}"), ("./a", "./b {n}")):
        code, sentence = refused("compare", "-L", "n=1,8", "-p", first, "-p", second, "--", "{n}")
        assert (code, sentence) == (
            2,
            "{n} of -L is not for the words of -p; write it behind '--', as in -p old=./a "
            "-p new=./b -- {n}",
        )


CHECKED = Gate((GateBound("time", 0.03),))
COMMANDS: dict[str, dict[str, object]] = {
    "compare": {},
    "check": {"gate": CHECKED},
    "bench": {"experiment": "build"},
    "matrix run": {"experiment": "matrix suite"},
    "soak": {"soak_s": 5.0},
}
"""By command: the property of a run that tells it from the runs of the other commands."""


def a_run_of(command: str) -> Run:
    more = dict(COMMANDS[command])
    run = a_run()
    soak_s = more.pop("soak_s", None)
    run = replace(run, settings=replace(run.settings, soak_s=soak_s))
    return replace(run, **more)


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("made_by", COMMANDS)
def test_a_run_is_continued_by_the_command_that_made_it(
    made_by: str, is_stored: bool, tmp_path: Path
) -> None:
    """An interrupted check was once continued by 'cairn compare', which judges no bounds.

    'cairn check' once continued a suite and a soak. A run of an earlier version has no `made_by`.
    """
    run = replace(a_run_of(made_by), made_by=f"cairn {made_by}" if is_stored else None)
    folder = store.Folder.create(tmp_path, run)
    for command in COMMANDS:
        if command != made_by:
            words = (*command.split(), "--resume", "last", "--results", tmp_path)
            assert refused(*words) == (
                2,
                f"last is not a run of 'cairn {command}'; continue it with 'cairn {made_by} "
                "--resume last'",
            )
    assert measurement.measured(folder).resume == f"cairn {made_by} --resume {folder.path}"


def of_one_build(made_by: str | None) -> Run:
    return replace(a_run(Contender("system", "system", "glibc", spec="system")), made_by=made_by)


def test_a_check_against_a_base_is_not_continued_as_a_comparison(tmp_path: Path) -> None:
    """Such a run has no bounds, so 'cairn compare --resume' once continued it and judged none."""
    folder = store.Folder.create(tmp_path, of_one_build("cairn check"))
    told = refused("compare", "--resume", "last", "--results", tmp_path)
    assert told == (
        2,
        "last is not a run of 'cairn compare'; continue it with 'cairn check --resume last'",
    )
    code, sentence = refused("check", "--resume", "last", "--results", tmp_path)
    assert code == 2 and "last has no bounds" in sentence and "add --against FILE" in sentence
    resume = measurement.measured(folder).resume
    assert resume == f"cairn check --against FILE --resume {folder.path}"


def test_a_check_of_an_earlier_version_against_a_base_may_be_continued(tmp_path: Path) -> None:
    """Nothing in the run says that it is one of a check."""
    store.Folder.create(tmp_path, of_one_build(None))
    code, sentence = refused("check", "--resume", "last", "--results", tmp_path)
    assert code == 2 and "add --against FILE" in sentence


def test_no_command_continues_the_run_of_a_base(tmp_path: Path) -> None:
    folder = store.Folder.create(tmp_path, of_one_build(measurement.MAKE_BASE))
    for command in ("compare", "check"):
        code, sentence = refused(command, "--resume", "last", "--results", tmp_path)
        assert code == 2 and "make the base again with 'cairn check --make-base'" in sentence
    assert measurement.measured(folder).resume is None


def test_a_run_that_an_error_ended_is_not_continued(tmp_path: Path) -> None:
    """The report once advised to resume it, and it ended with the same error again."""
    folder = store.Folder.create(tmp_path, a_run_of("compare"))
    assert measurement.measured(folder).resume is not None, "this process measures it"
    assert measurement.measured(store.Folder(folder.path)).resume is None, "it goes on by itself"
    folder.mark_refused(RunRefusal(2, "redis-server is a server that waits for requests"))
    assert measurement.measured(folder).resume is None


@pytest.mark.parametrize(
    ("stopped", "rounds", "last", "planned"),
    [
        ((), 0, "cairn compare --resume RUN", 8),
        ((), 3, "cairn compare --resume RUN", 8),
        ((INTERRUPTED,), 3, "cairn compare --resume RUN", 8),
        ((INTERRUPTED,), 8, "cairn compare --resume RUN", 8),
        (("8 rounds",), 8, "cairn compare -r 16 …", 8),
        ((), 2, "cairn compare -r 6 …", 3),
        ((), 2, "cairn compare --resume RUN", 6),
    ],
)
def test_the_next_step_after_an_interruption_is_to_resume(
    stopped: tuple[str, ...], rounds: int, last: str, planned: int
) -> None:
    """The report once advised to begin a new run, and stderr to resume the old one.

    Later, it advised to resume a run of three rounds, which are too few for any answer.
    """
    noise = random.Random(5)
    rule = StopRule(precision=None, min_rounds=planned, max_rounds=planned)
    samples = [
        a_sample(number, one.name, 100 * noise.uniform(0.8, 1.25), user_ns=0)
        for number in range(1, rounds + 1)
        for one in a_run().contenders
    ]
    whole = Measured(
        replace(a_run(), rule=rule), tuple(samples), stopped, "RUN",
        resume="cairn compare --resume RUN",
    )  # fmt: skip
    (found,) = comparisons(whole)
    assert found.next_steps[-1] == last


@pytest.mark.parametrize("rounds", [2, 12])
def test_a_report_during_a_measurement_advises_no_other_one(rounds: int) -> None:
    """It advised "cairn compare -r 6 …", although the run itself went on."""
    noise = random.Random(5)
    samples = [
        a_sample(number, one.name, 100 * noise.uniform(0.8, 1.25), user_ns=0)
        for number in range(1, rounds + 1)
        for one in a_run().contenders
    ]
    for is_measured in (True, False):
        some = Measured(a_run(), tuple(samples), (), "RUN", is_measured=is_measured)
        (found,) = comparisons(some)
        advised = any(step.startswith("cairn compare") for step in found.next_steps)
        assert advised is not is_measured, found.next_steps


def test_the_errors_of_one_call_of_get_have_the_exit_code_of_their_kind() -> None:
    for names in (("nosuch",), ("nosuch", "nosucheither")):
        assert refused("allocators", "get", *names)[0] == 2


@pytest.mark.parametrize(
    ("contenders", "bad", "error", "told"),
    [
        (("system",), "system", "under system, the program failed with exit code 1", ""),
        (("system", "fast"), "system",
         "there is nothing to compare with, since under system the program failed with exit code 1",
         ""),
        (("system", "fast"), "fast",
         "nothing is left to compare system with: under fast, the program failed with exit code 1",
         "✘ under fast, the program failed with exit code 1\n"),
    ],
)  # fmt: skip
def test_the_program_fails_under_a_contender_and_a_failed_baseline_is_told_once(
    contenders: tuple[str, ...], bad: str, error: str, told: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A line once said "system failed with exit code 1", and the next one said so again."""
    monkeypatch.setattr(builds, "of_run", lambda *_: ())

    class Fake:
        def __init__(self, *_: object) -> None:
            """Needs nothing."""

        def trial(self, trial: Trial, **_: object) -> tuple[Sample, runner.Trace]:
            why = "failed with exit code 1" if trial.contender == bad else None
            sample = replace(a_sample(0, "", 5.0), trial=trial, failure=why)
            return sample, runner.Trace(b"", "")

    monkeypatch.setattr(measure, "Runner", Fake)
    run = a_run(*(Contender(name, "system", "glibc") for name in contenders))
    run = replace(run, host=replace(run.host, virtual=False))
    said = io.StringIO()
    console = Console(file=said, width=200)
    lines = progress.Lines(console, run.rule, progress.PlannedTrials(2))
    folder = store.Folder.create(tmp_path, run)
    with pytest.raises(CairnError) as raised:
        measure.Measurement(run, folder, tmp_path, lines).measure()
    assert str(raised.value) == error
    assert said.getvalue() == told
