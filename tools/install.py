"""Installs under a prefix what `make` has built, and removes it again.

`make install` and `make uninstall` call this script. The environment gives PREFIX, the folder in
which the files are used, and DESTDIR, the folder in which packagers assemble a package. Files are
written below DESTDIR, and no file contains the path of DESTDIR. After an installation, always:

    PREFIX/lib/cairn is a private Python environment, which only this script writes
    PREFIX/lib/cairn/manifest.txt lists all other files, and the folders that were made for them

Every file is first written next to its target under a temporary name, and renamed at the end. A
failure before the renames changes nothing. A rename gives a library a new file, so that a running
program keeps the file that it has mapped.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

TREE = Path(__file__).resolve().parent.parent

COMPLETIONS = {
    "bash": Path("share/bash-completion/completions/cairn"),
    "zsh": Path("share/zsh/site-functions/_cairn"),
    "fish": Path("share/fish/vendor_completions.d/cairn.fish"),
}
"""The file that each shell reads for completions, relative to the prefix."""

HOME = Path("lib/cairn")
"""The private Python environment, relative to the prefix."""

MANIFEST = HOME / "manifest.txt"
HEADING = (
    "# Installed by Cairn's 'make install'. 'make uninstall' removes these files,"
    " and these folders when empty."
)


class Refused(Exception):
    """A refusal. Its text says in a sentence why the script installed or removed nothing."""


@dataclass(frozen=True, slots=True)
class Place:
    """The prefix that installed programs see, and the folder in which the script writes the files.

    The two are the same folder unless DESTDIR is set.
    """

    prefix: Path
    root: Path


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link to install."""

    target: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of an installation outside its Python environment, and their folders."""

    files: frozenset[Path] = frozenset()
    folders: frozenset[Path] = frozenset()

    @classmethod
    def read(cls, root: Path) -> Manifest | None:
        """Returns the manifest of the installation under `root`, or None if there is none."""
        path = root / MANIFEST
        try:
            heading, *lines = path.read_text(encoding="utf-8").splitlines()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise Refused(f"{path} cannot be read: {error}") from error
        if heading != HEADING or any(
            line.startswith("/") or ".." in Path(line).parts for line in lines
        ):
            raise Refused(f"{path} is not a list that 'make install' wrote")
        return cls(
            frozenset(Path(line) for line in lines if not line.endswith("/")),
            frozenset(Path(line) for line in lines if line.endswith("/")),
        )

    @property
    def text(self) -> str:
        """The text of the manifest's file."""
        lines = [
            HEADING,
            *sorted(map(str, self.files)),
            *sorted(f"{folder}/" for folder in self.folders),
        ]
        return "\n".join(lines) + "\n"


def place() -> Place:
    """Reads PREFIX and DESTDIR."""
    given = os.environ.get("PREFIX", "")
    if not given:
        raise Refused("PREFIX is empty; name a folder, for example PREFIX=/usr/local")
    prefix = Path(os.path.abspath(os.path.expanduser(given)))
    destination = os.environ.get("DESTDIR", "")
    root = Path(os.path.abspath(destination) + str(prefix)) if destination else prefix
    if re.search(r'[:"\\$`\n]', str(root)):
        raise Refused(f'{root} contains one of : " \\ $ ` or a line break; choose another PREFIX')
    return Place(prefix, root)


# --- files to install -----------------------------------------------------------------------------


def built_wheel() -> Path:
    """Returns the package that `make` has built."""
    wheels = list((TREE / "build" / "dist").glob("*.whl"))
    if len(wheels) != 1:
        raise Refused("nothing is built yet; run 'make' first")
    return wheels[0]


def files_to_install(prefix: Path) -> dict[Path, bytes | Link]:
    """Returns every file outside the Python environment, by its path relative to the prefix."""
    files: dict[Path, bytes | Link] = {
        Path("bin/cairn"): Link(str(prefix / HOME / "bin" / "cairn"))
    }
    with zipfile.ZipFile(built_wheel()) as wheel:
        for name in wheel.namelist():
            if match := re.fullmatch(r"cairn/native/((?:include|lib)/.*[^/])", name):
                files[Path(match[1])] = wheel.read(name)
    for path, content in list(files.items()):
        soname = path.with_name(f"{path.name}.0")
        if soname in files and files[soname] == content:  # a wheel has copies instead of links
            files[path] = Link(soname.name)
    for page in (TREE / "man").glob("*.1"):
        files[Path("share/man/man1") / page.name] = page.read_bytes()
    for shell, path in COMPLETIONS.items():
        command = [str(TREE / ".venv" / "bin" / "cairn"), "completion", shell]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            raise Refused(f"'{' '.join(command)}' failed for the reason above; run 'make' first")
        files[path] = done.stdout
    return files


class Environment(venv.EnvBuilder):
    """A Python environment for the command alone, without pip and activation scripts."""

    def setup_scripts(self, context: SimpleNamespace) -> None:
        """Writes no scripts."""


def make_environment(stage: Path, final: Path) -> None:
    """Makes the Python environment in the folder `stage`, to be renamed to `final`."""
    Environment(symlinks=True).create(stage)
    python = stage / "bin" / "python"
    environment = {
        name: value for name, value in os.environ.items() if name not in {"DESTDIR", "PREFIX"}
    }
    pip: list[str | Path] = [
        *(
            TREE / ".venv" / "bin" / "python",
            "-m",
            "pip",
            "--python",
            python,
            "--disable-pip-version-check",
        ),
        *("install", "--quiet", "--no-compile", "--no-warn-script-location"),
        *("-c", TREE / "constraints.txt", built_wheel()),
    ]
    if subprocess.run(pip, env=environment, check=False).returncode:
        raise Refused(
            "pip could not install the package and its dependencies, for the reason above"
        )
    (site,) = stage.glob("lib/python3*/site-packages")
    forget_places(site)
    for path in (stage / "pyvenv.cfg", *(stage / "bin").iterdir()):
        if not path.is_symlink():
            path.write_bytes(path.read_bytes().replace(os.fsencode(stage), os.fsencode(final)))
    # Some packages contain files that do not compile. So the script ignores the exit status of
    # compileall, as pip does.
    compileall: list[str | Path] = [
        python,
        "-m",
        "compileall",
        "-qq",
        "-j",
        "0",
        "-s",
        stage,
        "-p",
        final,
        site,
    ]
    subprocess.run(compileall, env=environment, stdout=subprocess.DEVNULL, check=False)


def forget_places(site: Path) -> None:
    """Removes the path of the wheel from the package's records, and the hashes of its scripts.

    The hashes would become wrong, because make_environment() changes the first line of each script
    afterwards.
    """
    for record in site.glob("*.dist-info/RECORD"):
        (record.parent / "direct_url.json").unlink(missing_ok=True)
        lines = [
            re.sub(r"^((?:\.\./)+bin/[^,]*),.*", r"\1,,", line)
            for line in record.read_text(encoding="utf-8").splitlines()
            if "/direct_url.json," not in line
        ]
        record.write_text("\n".join(lines) + "\n", encoding="utf-8")


# --- installing -----------------------------------------------------------------------------------


def refuse_unwritable(folders: Iterable[Path]) -> None:
    """Raises Refused if one of the folders can neither be written nor made."""
    for folder in folders:
        nearest = folder
        while not os.path.lexists(nearest):
            nearest = nearest.parent
        if not nearest.is_dir():
            raise Refused(f"{nearest} is not a folder; choose another PREFIX")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise Refused(f"{nearest} cannot be written by this user; choose another PREFIX")


def refuse_foreign(root: Path, files: Iterable[Path]) -> None:
    """Raises Refused if another program made our folder, or a folder is where a file has to go."""
    home = root / HOME
    ours = Manifest.read(root) is not None or (
        (home / "pyvenv.cfg").is_file() and (home / "bin" / "cairn").is_file()
    )
    if os.path.lexists(home) and not ours:
        raise Refused(
            f"{home} exists, but 'make install' did not make it; move it or choose another PREFIX"
        )
    for path in files:
        if (root / path).is_dir():
            raise Refused(
                f"{root / path} is a folder where a file belongs; move it or choose another PREFIX"
            )


def make_folder(folder: Path) -> list[Path]:
    """Makes a folder and its parents. Returns those that were missing, the outermost first."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir()
    return missing[::-1]


def remove_empty(folder: Path) -> None:
    """Removes a folder if it is empty."""
    with contextlib.suppress(OSError):
        folder.rmdir()


def install(where: Place) -> None:
    """Installs everything, and replaces an earlier installation."""
    root, home = where.root, where.root / HOME
    files = files_to_install(where.prefix)
    targets = {path: root / path for path in files}
    refuse_unwritable({home.parent, *(target.parent for target in targets.values())})
    refuse_foreign(root, files)
    earlier = Manifest.read(root) or Manifest()
    if home.exists():
        refuse_unwritable([home])

    print(f"installing under {root}", flush=True)
    stage, old = (home.with_name(f".cairn-{word}") for word in ("new", "old"))
    made: list[Path] = []
    with contextlib.ExitStack() as undo:  # undoes the steps in reverse after a failure

        def folder_for(path: Path) -> None:
            for folder in make_folder(path.parent):
                undo.callback(remove_empty, folder)
                made.append(folder)

        folder_for(home)
        for left in (stage, old):
            shutil.rmtree(left, ignore_errors=True)
        undo.callback(shutil.rmtree, stage, ignore_errors=True)
        make_environment(stage, where.prefix / HOME)
        renames = {}
        for path, content in files.items():
            folder_for(targets[path])
            temporary = targets[path].with_name(f".{path.name}.cairn-new")
            undo.callback(temporary.unlink, missing_ok=True)
            write(temporary, content)
            renames[temporary] = targets[path]
        inside = {folder.relative_to(root) for folder in made if folder.is_relative_to(root)} - {
            Path()
        }
        manifest = Manifest(frozenset(files), earlier.folders | inside)
        (stage / MANIFEST.name).write_text(manifest.text, encoding="utf-8")
        if home.exists():
            home.rename(old)
            undo.callback(old.rename, home)
        stage.rename(home)
        undo.callback(home.rename, stage)
        for temporary, target in renames.items():
            temporary.replace(target)
        undo.pop_all()
    for path in earlier.files - manifest.files:
        (root / path).unlink(missing_ok=True)
    shutil.rmtree(old, ignore_errors=True)
    print(
        "installed: the command cairn with its man page and completions,"
        " libcairn, libcairn-hardened and libcairn-arena"
    )
    if where.root == where.prefix:
        print_hints(where.prefix)


def write(path: Path, content: bytes | Link) -> None:
    """Writes a new file that all users may read."""
    path.unlink(missing_ok=True)
    if isinstance(content, Link):
        path.symlink_to(content.target)
    else:
        path.write_bytes(content)


def print_hints(prefix: Path) -> None:
    """Prints the steps after which the command and the library are found by name."""
    if str(prefix / "bin") not in os.environ.get("PATH", "").split(":"):
        print(
            f"{prefix / 'bin'} is not in PATH; start {prefix / 'bin' / 'cairn'} or add the folder"
        )
    ldconfig = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if ldconfig is None:
        return

    def lines(*options: str) -> list[str]:
        return subprocess.run(
            [ldconfig, *options], capture_output=True, text=True, check=False
        ).stdout.splitlines()

    library = prefix / "lib" / "libcairn.so.0"
    searched = any(line.startswith(f"{library.parent}:") for line in lines("-N", "-X", "-v"))
    if searched and not any(line.endswith(f"=> {library}") for line in lines("-p")):
        print(f"run 'ldconfig' as root, so that linked programs find {library}")


# --- removing -------------------------------------------------------------------------------------


def uninstall(where: Place) -> None:
    """Removes the files that an installation wrote, and nothing else."""
    root, home = where.root, where.root / HOME
    manifest = Manifest.read(root)
    if manifest is None:
        raise Refused(
            f"'make install' has installed nothing under {root}; PREFIX=… names another folder"
        )
    refuse_unwritable({home, home.parent, *((root / path).parent for path in manifest.files)})
    for path in manifest.files:
        (root / path).unlink(missing_ok=True)
    shutil.rmtree(home)
    for folder in sorted(manifest.folders, reverse=True):  # the innermost first
        remove_empty(root / folder)
    print(f"removed from {root}")


def main() -> None:
    """Runs `install.py install` or `install.py uninstall`."""
    os.umask(0o022)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        {"install": install, "uninstall": uninstall}[sys.argv[1]](place())
    except Refused as error:
        sys.exit(f"cairn: {error}")
    except OSError as error:
        sys.exit(f"cairn: cannot write {error.filename or 'a file'}: {error.strerror or error}")
    except KeyboardInterrupt:
        sys.exit("cairn: interrupted")


if __name__ == "__main__":
    main()
