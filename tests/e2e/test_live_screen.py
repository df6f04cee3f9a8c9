"""Tests of 'cairn profile --live' in a real terminal: tmux shows what a reader sees."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TMUX = shutil.which("tmux")
pytestmark = pytest.mark.skipif(TMUX is None, reason="no tmux; apt-get install tmux")
PROGRAM = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
print("begins", flush=True)
while time.monotonic() < end:
    kept = [bytes(1000) for _ in range(20_000)]
    print("a round", file=sys.stderr)
    time.sleep(0.05)
print("ends")
"""
CAIRN = Path(sys.executable).parent / "cairn"
LAST_LINE = "Ctrl-C ends the program, and the report follows."
"""The last line of the screen at any size."""


class Terminal:
    """A terminal of 80 columns and 24 lines in which a command runs."""

    def __init__(self, folder: Path, command: str) -> None:
        self.socket = str(folder / "tmux")
        line = f"{command}; echo the code is $?; sleep 600"
        self("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", line)

    def __call__(self, *words: str) -> str:
        assert TMUX is not None
        done = subprocess.run(
            [TMUX, "-S", self.socket, *words], capture_output=True, text=True, check=False,
            env=os.environ | {"TERM": "xterm-256color"},
        )  # fmt: skip
        return done.stdout

    def screen(self) -> str:
        return self("capture-pane", "-p")

    def all(self) -> str:
        return self("capture-pane", "-p", "-S", "-500")

    def wait(self, holds: Callable[[str], bool], seconds: float = 60.0) -> str:
        """Returns the first screen for which holds() returns true."""
        end = time.monotonic() + seconds
        while not holds(found := self.screen()):
            assert time.monotonic() < end, found
            time.sleep(0.1)
        return found


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def made(*words: str, seconds: float, around: str = "{}") -> Terminal:
        script = tmp_path / "prog.py"
        script.write_text(PROGRAM, encoding="utf-8")
        program = ["--", sys.executable, str(script), str(seconds)]
        command = shlex.join([str(CAIRN), "profile", "--live", *words, *program])
        opened.append(Terminal(tmp_path, around.format(command)))
        return opened[-1]

    yield made
    for one in opened:
        one("kill-server")


def operations(screen: str) -> str:
    found = re.search(r"^  operations .*  ([\d.,]+(?: [MG])?)$", screen, re.MULTILINE)
    return found[1] if found else ""


def test_the_screen_is_renewed_and_its_end_is_the_report(
    terminal: Callable[..., Terminal],
) -> None:
    shown = terminal("--stacks", "--runs", "1", seconds=3600)
    words = (
        "who allocates", "a round", "cairn profile --live", "operations", "live", "held",
        "resident", "Ctrl-C",
    )  # fmt: skip
    # tmux may be asked in the middle of a new drawing, so the test waits for a whole screen.
    first = shown.wait(lambda text: all(word in text for word in words))
    lines = first.rstrip("\n").splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    shown.wait(lambda text: operations(text) not in ("", operations(first)))
    for width, height in ((60, 12), (120, 40)):
        shown("resize-window", "-x", str(width), "-y", str(height))
        before = operations(shown.screen())
        shown.wait(
            lambda text, was=before: (
                operations(text) not in ("", was)
                and text.startswith("cairn profile --live")
                and text.rstrip("\n").endswith("\n" + LAST_LINE)
            )
        )
    shown("send-keys", "C-c")
    shown.wait(lambda text: "the code is" in text)
    text = shown.all()
    assert "cairn profile --live" not in text, "the screen is gone"
    assert re.search(r"^begins$", text, re.MULTILINE) and "a round" in text
    assert text.index("a round") < text.index("profile  ")
    assert "who allocates" in text and "the code is 130" in text


def test_the_end_of_the_program_ends_the_screen(terminal: Callable[..., Terminal]) -> None:
    shown = terminal("--runs", "1", seconds=1)
    shown.wait(lambda text: "the code is 0" in text)
    text = shown.all()
    assert re.search(r"^ends$", text, re.MULTILINE)
    assert "profile  " in text and "cairn profile --live" not in text


def test_the_screen_is_drawn_on_standard_error_alone(
    terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    """The size comes from the terminal, and not from variables, which do not change with it."""
    out = tmp_path / "out"
    around = f"COLUMNS=200 LINES=100 {{}} > {shlex.quote(str(out))}"
    shown = terminal("--runs", "1", seconds=3, around=around)
    screen = shown.wait(lambda text: "Ctrl-C ends the program" in text)
    assert screen.startswith("cairn profile --live") and "begins" not in screen
    shown.wait(lambda text: "the code is 0" in text)
    assert out.read_text() == "begins\nends\n"


@pytest.mark.skipif(
    os.geteuid() != 0 and int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) > 2,
    reason="this user may not sample processes here",
)
def test_a_running_process_is_watched_and_goes_on(tmp_path: Path) -> None:
    script = tmp_path / "prog.py"
    script.write_text(PROGRAM.replace("time.sleep(0.05)", "time.sleep(0.005)"), encoding="utf-8")
    program = subprocess.Popen(
        [sys.executable, script, "3600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    command = shlex.join([str(CAIRN), "profile", "--live", "--pid", str(program.pid)])
    shown = Terminal(tmp_path, command)
    try:
        text = shown.wait(lambda text: "a second now" in text)
        assert f"({program.pid})" in text and "resident  " in text
        assert "Ctrl-C ends only the watching: the process goes on." in text
        shown("send-keys", "C-c")
        shown.wait(lambda text: "the code is 0" in text)
        assert "Ctrl-C ends only" not in shown.all(), "the screen is gone"
        assert f"({program.pid})" in shown.all()
        assert program.poll() is None
    finally:
        shown("kill-server")
        program.kill()
        program.wait()
