"""Tests of programs that process pictures, films, PDF files and web pages.

Threads of these programs pass large blocks to each other.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import INPUTS, NOBODY, Stage, image_of, path_of

pytestmark = pytest.mark.long


def digests(stage: Stage, *names: str) -> str:
    return " ".join(
        hashlib.sha256((stage.folder / name).read_bytes()).hexdigest() for name in names
    )


def test_ffmpeg(both: Callable[..., str]) -> None:
    """The session makes a film, filters it, encodes it by two codecs, and reads it again."""
    ffmpeg = path_of("ffmpeg")
    quiet = ["-nostdin", "-v", "error", "-threads", "4"]
    made = [
        "-f",
        "lavfi",
        "-i",
        "testsrc2=duration=2:size=480x270:rate=25",
        "-f",
        "lavfi",
        "-i",
        "sine=duration=2",
    ]
    exact = ["-fflags", "+bitexact", "-flags", "+bitexact"]

    def session(stage: Stage) -> str:
        stage.run(
            ffmpeg, *quiet, *made, "-c:v", "mpeg4", "-q:v", "4", "-c:a", "aac", *exact, "a.mkv"
        )
        stage.run(
            *(
                ffmpeg,
                *quiet,
                "-i",
                "a.mkv",
                "-filter_complex",
                "split[a][b];[a]hflip,boxblur[c];[b][c]hstack,scale=640:-2",
            ),
            *(
                "-c:v",
                "libx264",
                "-preset",
                "veryfast",
                "-threads",
                "4",
                "-c:a",
                "libmp3lame",
                *exact,
                "b.mp4",
            ),
        )
        stage.run(ffmpeg, *quiet, "-i", "b.mp4", "-vf", "fps=5", *exact, "%02d.png")
        return stage.run(ffmpeg, *quiet, "-i", "b.mp4", "-f", "md5", "-") + digests(
            stage, "a.mkv", "b.mp4", "01.png", "09.png"
        )

    both(session, image_of("ffmpeg"))


def test_imagemagick(both: Callable[..., str]) -> None:
    convert = path_of("convert")

    def session(stage: Stage) -> str:
        base = ["-size", "900x600", "-seed", "7", "plasma:", "-strip"]
        bare = ["-define", "png:exclude-chunks=date,time"]
        stage.run(
            convert,
            *base,
            "-blur",
            "0x3",
            "-resize",
            "60%",
            "-rotate",
            "17",
            "-swirl",
            "60",
            *bare,
            "a.png",
        )
        stage.run(
            convert,
            "a.png",
            "(",
            "+clone",
            "-negate",
            "-flip",
            ")",
            "+append",
            "-quantize",
            "Lab",
            "-colors",
            "64",
            *bare,
            "b.png",
        )
        stage.run(convert, "b.png", "-quality", "80", "c.jpg")
        stage.run(
            convert,
            "b.png",
            "-resize",
            "300x",
            "(",
            "+clone",
            "-charcoal",
            "2",
            ")",
            "-morph",
            "5",
            "d.gif",
        )
        stage.run(
            convert,
            "c.jpg",
            "d.gif[2]",
            "-layers",
            "merge",
            "-fft",
            "+depth",
            "+adjoin",
            *bare,
            "e%d.png",
        )
        return digests(stage, "a.png", "b.png", "c.jpg", "e0.png") + stage.run(
            convert, "d.gif", "-format", "%# ", "info:"
        )

    both(session, image_of("convert"))


def test_ghostscript(both: Callable[..., str]) -> None:
    """The session draws pages, makes a PDF of them, and draws the PDF."""
    gs = path_of("gs")
    quiet = ["-q", "-dNOPAUSE", "-dBATCH", "-dSAFER"]
    draw = [
        "-sDEVICE=png16m",
        "-r100",
        "-dTextAlphaBits=4",
        "-dNumRenderingThreads=4",
        "-dBandHeight=100",
    ]

    def session(stage: Stage) -> str:
        said = stage.run(gs, *quiet, *draw, "-sOutputFile=a%d.png", INPUTS / "pages.ps")
        stage.run(gs, *quiet, "-sDEVICE=pdfwrite", "-sOutputFile=pages.pdf", INPUTS / "pages.ps")
        stage.run(gs, *quiet, *draw, "-sOutputFile=b%d.png", "pages.pdf")
        return said + digests(stage, *(f"{kind}{page}.png" for kind in "ab" for page in (1, 2, 3)))

    both(session, image_of("gs"))


def test_chromium(both: Callable[..., str]) -> None:
    """The browser has a malloc that all its libraries use. Preloading libcairn must do no harm.

    The browser runs as the user "nobody" with user namespaces, so that it can make its sandbox.
    """
    chromium = path_of("chromium")
    own = ["/usr/lib/chromium/chromium", "/usr/lib/chromium/chrome_crashpad_handler"]
    options = ["--headless", "--disable-gpu", "--user-data-dir=profile"]
    user = NOBODY if os.getuid() == 0 else None
    if (
        subprocess.run(
            ["unshare", "--user", "true"], user=user, capture_output=True, check=False
        ).returncode
        != 0
    ):
        options.append("--no-sandbox")

    def session(stage: Stage) -> str:
        page = Path(shutil.copy(INPUTS / "page.html", stage.folder))
        return stage.run(
            chromium,
            *options,
            "--dump-dom",
            page,
            talks=r"^\[.*:(ERROR|WARNING):|unexpected operator",
        )

    assert ">289900 letters" in both(session, "chromium", user=NOBODY, own_malloc=own)
