"""Finds the program that a command starts, and decides whether a preloaded allocator works in it.

`inspect_program` returns the facts, `refuse_…` judges them. A refusal is one sentence with a next
step.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from cairn.binary import elf
from cairn.errors import ContenderFailed, ProgramMissing, ProgramNotExecutable

_OPERATOR = re.compile(r"[;|&<>]")
"""The characters of operators of the shell."""

_CONTROL = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")
"""The control characters that no text has. A terminal's escape sequences begin with \\x1b."""

_OTHER_FORMATS = "/proc/sys/fs/binfmt_misc"
"""The folder in which the kernel has a file for each further executable format (binfmt_misc)."""

_SANITIZERS = {
    "asan": "AddressSanitizer",
    "hwasan": "HWAddressSanitizer",
    "tsan": "ThreadSanitizer",
    "msan": "MemorySanitizer",
    "lsan": "LeakSanitizer",
}


class Program(Struct, frozen=True):
    """A command as the kernel will execute it.

    For a script, the ELF facts are those of its last interpreter.
    """

    command: str
    """The command as the user wrote it."""
    path: str
    """The file that is executed first, with symbolic links resolved."""
    kind: str
    """"dynamic", "static", "script" (its interpreter is dynamic) or "static script".

    "unknown" if the file cannot be read.
    """
    interpreter: str | None
    """The executable that runs a script, found through `env` and further scripts.

    None for a binary.
    """
    elf_class: int | None
    """32 or 64; None if unknown."""
    machine: str | None
    needs: tuple[str, ...]
    """The libraries that the program needs, as its dynamic section names them."""
    loader: str | None
    """The dynamic loader that the program requests, such as "/lib64/ld-linux-x86-64.so.2"."""
    setuid: bool
    setgid: bool
    capabilities: bool
    """Whether the file has file capabilities."""
    gains_rights: bool
    """Whether ids or rights change when this user executes the program.

    The loader then ignores preloaded libraries.
    """
    own_malloc: bool
    """Whether the program exports a malloc of its own, which takes precedence over a preloaded
    one."""
    sanitizer: str | None
    """The sanitizer with which the program was built and whose allocator it uses, or None."""
    build_id: str | None

    @property
    def file(self) -> str:
        """The ELF file that the facts describe."""
        return self.interpreter or self.path

    @property
    def musl(self) -> bool:
        """Whether the program's C library is musl. Libraries for glibc cannot be loaded into it."""
        return elf.is_musl_loader(self.loader)


def inspect_program(command: str, path: str | None = None) -> Program:
    """The program that `command` starts.

    path: the search path; None for the PATH of this process. Raises ProgramMissing or
    ProgramNotExecutable if the kernel could not start the program, and ContenderFailed for a script
    whose first line drops the preloaded allocator.
    """
    search = os.environ.get("PATH", os.defpath) if path is None else path
    first = _find_command(command, search)
    file, is_script = _follow_script(command, first, search)
    return _describe_program(command, first, file if is_script else None)


def _find_command(command: str, search: str) -> str:
    """The real path of the command's file, searched for as execvp does.

    The search goes on after a file that this user may not execute. If no other file is found, the
    error names the first such file.
    """
    missing = (
        f"{command or 'an empty name'}: command not found. Check its spelling, or give its path."
    )
    if not command or "\0" in command:
        raise ProgramMissing(missing)
    if "/" in command:
        candidates = [command]
        missing = f"{command}: no such file. Check the path of the program."
    else:
        candidates = [os.path.join(folder or ".", command) for folder in search.split(":")]
    refusal: str | None = None
    for candidate in candidates:
        try:
            mode = os.stat(candidate).st_mode
        except (FileNotFoundError, NotADirectoryError, ValueError):
            continue
        except OSError as error:
            if "/" not in command:
                continue  # the search path may name folders that this user cannot read
            step = (
                f"The link leads back to itself. Make a new one with ln -sfn PROGRAM {candidate}."
                if error.errno == errno.ELOOP
                else "Use a shorter path."
                if error.errno == errno.ENAMETOOLONG
                else "Check its folder's permissions."
            )
            refusal = refusal or f"{candidate} cannot be executed ({elf.reason(error)}). {step}"
            continue
        if stat.S_ISDIR(mode):
            if "/" in command:
                refusal = f"{candidate} is a folder, not a program. Name the program inside it."
        elif not stat.S_ISREG(mode):
            refusal = (
                refusal
                or f"{candidate} is not a regular file, so it cannot be executed. Name a program."
            )
        elif not os.access(candidate, os.X_OK):
            refusal = refusal or (
                f"{candidate} may not be executed. "
                "Use chmod +x, and a file system that is not mounted noexec."
            )
        else:
            return os.path.realpath(candidate)
    if refusal is not None:
        raise ProgramNotExecutable(refusal)
    raise ProgramMissing(_advice_on_line(command, search) or missing)


def _advice_on_line(command: str, search: str) -> str | None:
    """The message if the command is a whole line in quotes, as hyperfine takes it; else None."""
    first, *rest = command.split() or [""]
    if not rest:
        return None
    with contextlib.suppress(ProgramMissing, ProgramNotExecutable):
        _find_command(first.rstrip(";"), search)
        if _OPERATOR.search(command):
            return f"'{command}' is a line of the shell. Write sh -c before it."
        return f"'{command}' is one word, and no command has this name. Leave out the quotes."
    return None


def _follow_script(command: str, file: str, search: str) -> tuple[str, bool]:
    """The binary that runs `file`, and whether `file` is a script.

    The interpreter of a script may itself be a script. At most four further scripts are followed,
    like in the kernel.
    """
    for depth in range(5):
        line = _first_line_of_script(file)
        if line is None:
            return file, depth > 0
        words = re.split(r"[ \t]+", line, maxsplit=1) if line else []
        if not words:
            raise ProgramNotExecutable(
                f"{file} names no interpreter after '#!'. Add one, such as #!/bin/sh."
            )
        arguments = words[1] if len(words) > 1 else ""
        if os.path.basename(words[0]) == "env" and arguments:
            if problem := _env_problem(_env_arguments(arguments)):
                raise ContenderFailed(f"{command} is a script that starts with env and {problem}")
            target = _env_target(_env_arguments(arguments)) or words[0]
        else:
            target = words[0]
        try:
            file = _find_command(target, search)
        except ProgramMissing:
            if target.endswith("\r"):
                raise ProgramMissing(
                    f"{file} has the line ends of Windows (CR LF), so its interpreter would be "
                    f"{target.encode('unicode_escape').decode()}. "
                    f"Convert it: sed -i 's/\\r$//' {shlex.quote(file)}"
                ) from None
            raise ProgramMissing(
                f"{file} needs the interpreter {target}, which is not installed. "
                "Install it, or correct the first line of the script."
            ) from None
    raise ProgramNotExecutable(
        f"{command} is a script whose interpreter is a script, and so on: too many scripts for "
        "the kernel. Call the last script."
    )


def _first_line_of_script(file: str) -> str | None:
    """The text after "#!" in the first line; None for a binary or an unreadable file.

    "/bin/sh" for a text file without "#!", since execvp passes such a file to the shell.
    """
    try:
        descriptor = elf.open_regular(file)
    except OSError:
        return None
    try:
        head = os.pread(descriptor, 256, 0)
    finally:
        os.close(descriptor)
    if head.startswith(b"#!"):
        # The kernel removes blanks at both ends. A carriage return belongs to the last word.
        return os.fsdecode(head[2:].split(b"\n")[0]).strip(" \t").replace("\0", "")
    if head.startswith(b"\x7fELF") or _CONTROL.search(head):
        return None
    return "/bin/sh"


def _shell_words(text: str) -> list[str]:
    """Splits a text into arguments of env: the text in a '#!' line, or the text after -S.

    If a quote in the text is not closed, the text is split at blanks alone.
    """
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _env_arguments(text: str) -> list[str]:
    """The arguments of env in a '#!' line.

    A carriage return at the end of the line belongs to the last argument, except with -S.
    """
    words = _shell_words(text)
    if text.endswith("\r") and words and not re.match(r"-[0v]*S|--split-string", text):
        words[-1] += "\r"
    return words


def _env_words(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The arguments of env: ("option", text) for each option, then one ("command", word)."""
    pending = list(words)
    while pending:
        word = pending.pop(0)
        if split := re.match(r"-[0v]*S|--split-string=?", word):
            text = word[split.end() :] or (pending.pop(0) if pending else "")
            pending[0:0] = _shell_words(text)
        elif word in ("-u", "--unset", "-C", "--chdir") and pending:
            yield "option", f"{word} {pending.pop(0)}"
        elif word == "--":
            continue
        elif word.startswith("-") or "=" in word:
            yield "option", word
        else:
            yield "command", word
            return


def _env_target(words: Sequence[str]) -> str | None:
    return next((word for kind, word in _env_words(words) if kind == "command"), None)


def behind_env(command: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables that `env KEY=VALUE… PROGRAM …` sets, and the command line of PROGRAM.

    Any other command is returned as it is, without variables.
    """
    if not command or os.path.basename(command[0]) != "env":
        return {}, tuple(command)
    words = list(_env_words(command[1:]))
    target = next((word for kind, word in words if kind == "command"), None)
    if target is None:
        return {}, tuple(command)
    sets = [
        word.partition("=") for kind, word in words if kind == "option" and not word.startswith("-")
    ]
    # If the target is within the text of -S, it is not a separate word of `command`.
    behind = tuple(command[command.index(target) :]) if target in command else (target,)
    return {name: value for name, _, value in sets}, behind


def interpreter_flags(program: Program) -> tuple[str, ...]:
    """The argument for the interpreter in the '#!' line of a script, as a tuple.

    It is all text after the path of the interpreter. The kernel passes this text as one argument,
    even if it has several words. The tuple is empty if there is no such text, for a binary, and for
    a script that starts with env.
    """
    if program.interpreter is None:
        return ()
    words = (_first_line_of_script(program.path) or "").split(None, 1)
    return (words[1].strip(),) if len(words) > 1 and os.path.basename(words[0]) != "env" else ()


def _env_problem(words: Sequence[str]) -> str | None:
    """Why this use of env keeps a preloaded library out, as the end of a sentence."""
    for kind, word in _env_words(words):
        if kind == "command":
            return None
        if word in ("-", "--ignore-environment") or re.match(r"-[0v]*i", word):
            return (
                "empties the environment, which drops the preloaded allocator. "
                "Run the program without env -i."
            )
        unset = word.removeprefix("--unset=").removeprefix("--unset ").removeprefix("-u").strip()
        if (unset == "LD_PRELOAD" and word != unset) or word.startswith("LD_PRELOAD="):
            return (
                "changes LD_PRELOAD, which drops the preloaded allocator. "
                "Run the program without that."
            )
    return None


def refuse_wrapper(command: Sequence[str]) -> None:
    """Raises ContenderFailed for `env -i PROGRAM` and the like, which drop the allocator."""
    if command and os.path.basename(command[0]) == "env" and (problem := _env_problem(command[1:])):
        raise ContenderFailed(f"{command[0]} {problem}")


def _describe_program(command: str, first: str, interpreter: str | None) -> Program:
    file = interpreter or first
    status = os.stat(file)
    capabilities = _has_capabilities(file)
    setuid = bool(status.st_mode & stat.S_ISUID)
    setgid = status.st_mode & (stat.S_ISGID | stat.S_IXGRP) == stat.S_ISGID | stat.S_IXGRP
    gains = _rights_can_change(file) and (
        (setuid and status.st_uid != os.geteuid())
        or (setgid and status.st_gid != os.getegid())
        or (capabilities and os.getuid() != 0)
        or os.getuid() != os.geteuid()
    )
    program = Program(
        command=command, path=first, kind="unknown", interpreter=interpreter, elf_class=None,
        machine=None, needs=(),
        loader=None, setuid=setuid, setgid=setgid, capabilities=capabilities, gains_rights=gains,
        own_malloc=False,
        sanitizer=None, build_id=None,
    )  # fmt: skip
    try:
        descriptor = elf.open_regular(file)
    except OSError:
        return program  # executable but not readable: only a run can tell
    try:
        image = elf.Image(descriptor)
        if image.truncated or image.type not in (elf.ET_EXEC, elf.ET_DYN):
            raise elf.Damaged
        if image.loader is None and image.needs and not image.is_pie:
            raise ProgramNotExecutable(
                f"{file} is a shared library, not a program. Name a program."
            )
        kind = "dynamic" if image.loader is not None else "static"
        if interpreter is not None:
            kind = "script" if kind == "dynamic" else "static script"
        needs = image.needs
        return Program(
            command=command, path=first, kind=kind, interpreter=interpreter, elf_class=image.bits,
            machine=image.machine, needs=needs, loader=image.loader, setuid=setuid, setgid=setgid,
            capabilities=capabilities, gains_rights=gains, own_malloc=image.defines("malloc"),
            sanitizer=_sanitizer(image, needs), build_id=image.build_id,
        )  # fmt: skip
    except elf.NotElf:
        if _has_other_formats():
            return program
        raise ProgramNotExecutable(
            f"{file} is neither a program nor a script. Name a program."
        ) from None
    except (elf.Damaged, OSError):
        raise ProgramNotExecutable(
            f"{command} is a damaged or truncated executable. "
            "Build it, or install its package, again."
        ) from None
    finally:
        os.close(descriptor)


def _has_other_formats() -> bool:
    """Whether the kernel can execute files that are neither ELF files nor scripts."""
    try:
        return bool(set(os.listdir(_OTHER_FORMATS)) - {"register", "status"})
    except OSError:
        return False


def _sanitizer(image: elf.Image, needs: Iterable[str]) -> str | None:
    for short, title in _SANITIZERS.items():
        for name in needs:
            if name.startswith(f"lib{short}.so") or f"clang_rt.{short}" in name:
                return title
        if image.defines(f"__{short}_init"):
            return title
    return None


def _has_capabilities(file: str) -> bool:
    try:
        return any(os.getxattr(file, "security.capability")[4:])
    except OSError:
        return False


def _rights_can_change(file: str) -> bool:
    """Whether setuid bits and file capabilities have an effect.

    The kernel ignores them under no_new_privs and on a file system mounted nosuid.
    """
    try:
        if os.statvfs(file).f_flag & os.ST_NOSUID:
            return False
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return "NoNewPrivs:\t1" not in status.read()
    except OSError:
        return True


def refuse_program(program: Program) -> None:
    """Raises ContenderFailed, with the reason and the next step, if no preload can work here."""
    name = program.command
    if program.interpreter is not None:
        name = f"{program.interpreter}, which runs {program.command},"
    if program.kind in ("static", "static script"):
        raise ContenderFailed(
            f"{name} is statically linked: a preloaded allocator cannot reach it. "
            "Relink it dynamically, or link the allocator in."
        )
    if program.gains_rights:
        how = (
            "is setuid"
            if program.setuid
            else "is setgid"
            if program.setgid
            else "has file capabilities"
        )
        raise ContenderFailed(
            f"{name} {how}: the loader ignores preloaded libraries in it. "
            "Run a copy of it without those rights."
        )
    if program.elf_class is None:
        return
    bits, machine, musl = elf.native()
    if (program.elf_class, program.machine) != (bits, machine):
        raise ContenderFailed(
            f"{name} is a {program.elf_class}-bit {program.machine} program, "
            f"and the libraries here are {bits}-bit {machine}. Use a build of it for {machine}."
        )
    if program.musl != musl:
        theirs, ours = ("musl", "glibc") if program.musl else ("glibc", "musl")
        raise ContenderFailed(
            f"{name} runs on {theirs}, and the libraries here are for {ours}. "
            f"Use a build of it for {ours}."
        )
    if program.sanitizer is not None:
        raise ContenderFailed(
            f"{name} is built with {program.sanitizer}, which has its own allocator. "
            "Rebuild it without -fsanitize."
        )
    if program.own_malloc:
        raise ContenderFailed(
            f"{name} defines malloc itself, so a preloaded allocator is never called. "
            "Rebuild it without its own malloc."
        )
