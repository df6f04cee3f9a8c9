"""Tests of `cairn sites`: reading call sites, finding their functions, and printing the table."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from cairn.binary import elf
from cairn.binary.build_ids import build_id_of
from cairn.errors import CairnError
from cairn.profile import call_sites, symbols

COUNTS = {
    **{"counted": 4, "blocks_variance": 0, "blocks": 4, "bytes": 458752},
    **{"live_count": 1, "live_bytes": 114688, "hits": 3, "misses": 1},
}
SITE = {"address": "0x401234", "slices": 7, "depth": 3, **COUNTS, "lives": [0, 1, 2, 0, 0, 0, 0, 0]}
OTHERS = {**dict.fromkeys(COUNTS, 0), "lives": [0] * 8}


def line(*told: dict[str, object], count: int | None = None, path: str = "./prog") -> str:
    return json.dumps(
        {
            "live_bytes": 1,
            "objects": [{"path": path, "base": "0x400000", "begin": "0x400000", "end": "0x402000"}],
            "site_count": len(told) if count is None else count,
            "other_sites": OTHERS,
            "sites": list(told),
        },
        separators=(",", ":"),
    )


def test_each_process_is_a_document_among_other_lines() -> None:
    text = (
        f"a line of the program's\n{line(SITE)}\n"
        + '{"live_bytes":1,"classes":[]}\n'
        + f"{line()}\n"
    )
    (first, second), damaged = call_sites.parse(text.splitlines())
    assert damaged == 0
    (site,) = first.sites
    assert (site.address, site.slices, site.depth, site.blocks) == (0x401234, 7, 3, 4)
    assert first.object_of(site) == call_sites.Object("./prog", 0x400000, 0x400000, 0x402000)
    assert second.sites == ()


def test_a_path_may_contain_any_bytes() -> None:
    ((document,), _) = call_sites.parse([line(SITE, path="/h\u00c3\u00a9/\u00ff")])
    assert os.fsencode(document.objects[0].path) == "/hé/".encode() + b"\xff"


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"live_bytes":1}\n', '{"sites":[1]}', '{"sites":[],"objects":5}', '{"sites":[}'],
)
def test_lines_without_call_sites_are_a_sentence(text: str) -> None:
    with pytest.raises(CairnError):
        call_sites.parse([text])


def test_the_table_counts_the_sites_that_it_does_not_show() -> None:
    ((document,), _) = call_sites.parse([line(SITE, {**SITE, "address": "0x401235"}, count=5)])
    shown = call_sites.render(
        document, lambda site: f"f+{site.address - 0x401230:#x}", 1
    ).splitlines()
    assert shown[1].split() == [
        "448",
        "KiB",
        "4",
        "112",
        "KiB",
        "75",
        "%",
        "<",
        "262",
        "µs",
        "112",
        "KiB",
        "f+0x4",
    ]
    assert shown[2] == "4 sites with fewer bytes are not shown"


def test_an_estimate_is_shown_with_its_error() -> None:
    told = {**SITE, "counted": 25, "blocks_variance": 25 * 4 * 3, "blocks": 100, "live_count": 97}
    ((document,), _) = call_sites.parse([line(told, {**SITE, "address": "0x401235"})])
    assert [round(site.error, 3) for site in document.sites] == [0.346, 0]
    shown = call_sites.render(document, lambda _: "f", 2).splitlines()
    assert shown[1].split()[2:5] == ["100", "35", "%"] and shown[2].split()[2:4] == ["4", "112"]
    assert shown[3].startswith("±: 95 % interval of blocks")


def test_half_lived_is_the_time_that_half_of_the_blocks_did_not_reach() -> None:
    assert call_sites.half_lived([0] * 8) == "-"
    assert call_sites.half_lived([1] + [0] * 7) == "< 1 µs"
    assert call_sites.half_lived([1, 0, 0, 2, 0, 0, 0, 0]) == "< 4.2 ms"
    assert call_sites.half_lived([0] * 7 + [9]) == "longer"


def functions(path: Path) -> symbols.Functions:
    descriptor = elf.open_regular(str(path))
    try:
        return symbols.Functions(elf.Image(descriptor))
    finally:
        os.close(descriptor)


def test_the_function_at_an_address_is_found(compiled: Callable[..., Path]) -> None:
    program = compiled("churn.c")
    with program.open("rb") as file:
        main = ELFFile(file).get_section_by_name(".symtab").get_symbol_by_name("main")[0]
    found = functions(program)
    start, size = main["st_value"], main["st_size"]
    assert found.at(start) == ("main", 0) and found.at(start + size - 1) == ("main", size - 1)
    assert found.at(0) is None and found.at(1 << 60) is None
    place = symbols.Files().place(
        call_sites.Object(str(program), 1 << 40, 1 << 40, 1 << 41), (1 << 40) + start + 5
    )
    assert (place.function, place.offset, place.path) == ("main", 5, str(program))


def test_an_address_outside_any_known_function_is_shown_as_a_number(
    compiled: Callable[..., Path], tmp_path: Path
) -> None:
    stripped = compiled("churn.c", "-s")
    assert functions(stripped).at(0) is None
    text = tmp_path / "text"
    text.write_text("hello")
    files = symbols.Files()
    for path in (str(text), str(tmp_path), str(tmp_path / "gone")):
        place = files.place(call_sites.Object(path, 0x1000, 0x1000, 0x2000), 0x1234)
        assert str(place) == f"0x234 in {path}"
    assert str(files.place(None, 0x1234)) == "0x1234"


def placed(program: Path, build_id: str | None, unix_ns: int | None) -> tuple[str, symbols.Files]:
    """The place of an address in main() that a report has for this program, and the files."""
    with program.open("rb") as file:
        main = ELFFile(file).get_section_by_name(".symtab").get_symbol_by_name("main")[0]
    files = symbols.Files()
    mapped = call_sites.Object(str(program), 0, 0, 1 << 40, build_id)
    return str(files.place(mapped, main["st_value"] + 5, unix_ns)), files


def test_a_file_with_another_build_id_names_no_function(compiled: Callable[..., Path]) -> None:
    program = compiled("churn.c")
    build_id = build_id_of(str(program))
    assert build_id
    name, files = placed(program, build_id, 0)
    assert name == f"main+0x5 in {program}" and not files.changed and not files.unchecked
    for other in ("0" * len(build_id), ""):
        name, files = placed(program, other, 1 << 63)
        assert name.startswith("0x") and files.changed == {str(program)}


def test_a_file_without_a_build_id_is_trusted_until_it_changes(
    compiled: Callable[..., Path],
) -> None:
    program = compiled("churn.c", "-Wl,--build-id=none")
    changed_ns = program.stat().st_ctime_ns
    name, files = placed(program, "", changed_ns)
    assert name == f"main+0x5 in {program}" and not files.changed
    name, files = placed(program, "", changed_ns - 1)
    assert name.startswith("0x") and files.changed == {str(program)}
    name, files = placed(program, "12345678", changed_ns)
    assert name.startswith("0x") and files.changed == {str(program)}


def test_an_old_report_without_build_ids_is_marked(compiled: Callable[..., Path]) -> None:
    program = compiled("churn.c")
    name, files = placed(program, None, None)
    assert name == f"main+0x5 in {program}" and files.unchecked == {str(program)}


def test_a_program_that_was_built_again_is_named_in_one_sentence(
    cairn, compiled: Callable[..., Path], tmp_path: Path
) -> None:
    program, told = tmp_path / "prog", tmp_path / "told"
    for flags in ((), ("-Wl,--build-id=none",)):
        shutil.copy(compiled("large_blocks.c", *flags), program)
        ran = cairn("run", "-a", "cairn:CAIRN_SITES=1;CAIRN_STATS=json", "--", program)
        assert ran.code == 0, ran.err
        told.write_text(ran.err)
        ended = cairn("sites", told)
        assert f" in {program}" in ended.out and "make_block+" in ended.out and ended.err == ""
        shutil.copy(compiled("large_blocks.c", "-DNAMED=another_name", *flags), program)
        for form in ((), ("--json",)):
            ended = cairn("sites", *form, told)
            assert ended.code == 0
            assert "make_block" not in ended.out and "another_name" not in ended.out
            assert ended.err.strip() == (
                f"▲ {program} has changed since the program ran, so its functions are not named"
            )


def test_the_functions_of_a_script_are_those_of_its_interpreter(
    compiled: Callable[..., Path], tmp_path: Path
) -> None:
    program = compiled("churn.c")
    script = tmp_path / "script"
    script.write_text(f"#!{program}\n")
    script.chmod(0o755)
    place = symbols.Files().place(call_sites.Object(str(script), 0, 0, 1 << 40), 0x1234)
    assert place.path == os.path.realpath(program)


def test_processes_without_large_blocks_are_only_counted(cairn, tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.write_text(f"{line()}\n{line(SITE)}\n{line()}\n")
    shown = cairn("sites", told).out.splitlines()
    assert shown[0] == "process 2 of 3, in the order in which they ended"
    assert shown[2].startswith("448 KiB") and shown[2].endswith("0x1234 in ./prog")
    assert shown[-1] == "2 processes had no block above 32 KiB"


@pytest.mark.parametrize(
    "damaged",
    [
        line(SITE)[:-40],
        line(SITE)[:200] + line(SITE),
        line({**SITE, "blocks": 0}),
        line(SITE).replace('"blocks":4', '"blocks":Infinity'),
        line(SITE).replace('"blocks":4', '"blocks":' + "9" * 400),
        line(SITE).replace('"blocks":4', '"blocks":-4'),
        line(SITE, path="/a\0b"),
        '{"live_bytes":1,"sites":' + "[" * 100_000,
    ],
)
def test_a_damaged_line_does_not_hide_the_others(cairn, tmp_path: Path, damaged: str) -> None:
    told = tmp_path / "told"
    told.write_text(f"{damaged}\n50 % done{line(SITE)}\n")
    ended = cairn("sites", told)
    assert ended.code == 0 and "0x1234 in ./prog" in ended.out
    assert ended.err.strip() == "▲ 1 damaged line was left out"
    as_json = cairn("sites", "--json", told)
    assert as_json.code == 0 and as_json.err == ended.err
    (process,) = as_json.json
    assert set(process) == {"site_count", "other_sites", "sites"}
    assert [one["path"] for one in process["sites"]] == ["./prog"]
    told.write_text(damaged)
    ended = cairn("sites", told)
    assert ended.code == 1 and "cut off or mixed up" in ended.err and "Traceback" not in ended.err
