"""Tests of pages in headless Chromium: what a reader sees, and what a reader can do.

They need a Chromium of the system: on Debian, apt-get install chromium.
"""

from __future__ import annotations

import json
import math
import shutil
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support import pages
from support.probes import busy
from support.soaks import a_soak
from support.stacks import random_stacks

from cairn.page import profile as profile_pages
from cairn.page.results import ListedPage
from cairn.page.results import page as list_of_pages
from cairn.profile import reader
from cairn.profile.tally import ClockRun, FunctionTime, KernelClock
from cairn.report import run_csv
from cairn.report.run import comparisons, rendered
from cairn.report.view import View

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium"),
]
WIDTHS = (360, 800, 1600)
NAMES = ("compare", "long", "why", "suite", "plan", "profile", "soak", "hostile", "list")


@pytest.fixture(scope="session")
def browser() -> Iterator[sync_api.Browser]:
    with sync_api.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


def a_profile(folder: Path) -> str:
    folder.mkdir()
    busy().write(folder)
    clock = ClockRun(
        probed=True, scope="processors", samples=4_000, own_ns=300e6, calls_ns=40e6,
        faults_ns=50e6, program_ns=600e6, probe_ns=200e6, inside_squares=100e12, squares=250e12,
        cpu_ns=1.2e9, interrupts_ns=10e6,
        functions=(FunctionTime("_int_malloc", "libc.so.6", 1_400, 140e6, 49e12),),
    )  # fmt: skip
    from msgspec.structs import replace

    found = replace(reader.gather(folder), clock=KernelClock((clock,)))
    stacks = random_stacks(1, 300, 4, 5)
    return profile_pages.page(
        found, allocator="glibc 2.36", stacks=stacks, made_by="cairn profile -- prog"
    )


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Returns the address of each page."""
    folder = tmp_path_factory.mktemp("pages")
    made = {
        "compare": pages.page_of(pages.compared_run()),
        "long": pages.page_of(pages.long_names_run()),
        "why": pages.page_of(pages.explained_run()),
        "suite": pages.page_of(pages.suite_run()),
        "plan": pages.page_of(pages.plan_run()),
        "large": pages.page_of(pages.plan_run(40, 11, 10)),
        "profile": a_profile(folder / "raw"),
        "soak": pages.page_of(a_soak()),
        "hostile": pages.page_of(pages.hostile_run()),
        "list": list_of_pages([ListedPage("suite", "today", "Use fast.", "suite.html")]),
    }
    return {name: pages.write(page, folder / f"{name}.html") for name, page in made.items()}


class Opened:
    """A page in the browser, with its error messages and its network requests."""

    def __init__(self, browser: sync_api.Browser, address: str, **about: object) -> None:
        self.context = browser.new_context(**about)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)

    def __enter__(self) -> sync_api.Page:
        return self.page

    def __exit__(self, *_: object) -> None:
        address = self.page.url.partition("#")[0]
        self.context.close()
        assert self.complaints == []
        asked = [one for one in self.requests if not one.startswith("data:")]
        assert set(asked) <= {address}


def opened(browser: sync_api.Browser, address: str, width: int = 1200, **about: object) -> Opened:
    return Opened(browser, address, viewport={"width": width, "height": 900}, **about)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_wider_than_the_screen_and_nothing_complains(
    browser: sync_api.Browser, files: dict[str, str], name: str, width: int
) -> None:
    with opened(browser, files[name], width) as page:
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_there_is_no_serious_fault_of_accessibility(
    browser: sync_api.Browser, files: dict[str, str], name: str, scheme: str
) -> None:
    script = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    with opened(browser, files[name], color_scheme=scheme, bypass_csp=True) as page:
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        page.add_script_tag(content=script)
        found = page.evaluate("axe.run()")
    assert len(found["passes"]) > 10
    serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    told = [(one["id"], one["nodes"][0]["html"][:200]) for one in serious]
    assert not told


def residual(across: Sequence[float], along: Sequence[float]) -> float:
    """Returns how far the farthest point lies from the regression line of all points."""
    if max(across) == min(across):
        return max(along) - min(along)
    slope, start = statistics.linear_regression(across, along)
    return max(abs(start + slope * x - y) for x, y in zip(across, along, strict=True))


MARKS = """() => [...document.querySelectorAll('figure.tracks')].map((figure) => [
    figure.dataset.of, [...figure.querySelectorAll('circle[data-value]:not(.beyond)')].map(
        (mark) => {
            const box = mark.getBoundingClientRect();
            return [Number(mark.dataset.value), box.left + box.width / 2];
        })])"""
REACHES = """() => [...document.querySelectorAll('figure.tracks .track')].flatMap((track) => {
    const line = track.querySelector('line.reach');
    const mark = track.querySelector('circle.estimate');
    if (!line || !mark) return [];
    const box = line.getBoundingClientRect();
    const dot = mark.getBoundingClientRect();
    return [[box.left, dot.left + dot.width / 2, box.right]];
})"""


@pytest.mark.parametrize("name", ["compare", "suite", "plan"])
def test_marks_are_drawn_where_their_numbers_belong(
    browser: sync_api.Browser, files: dict[str, str], name: str
) -> None:
    with opened(browser, files[name]) as page:
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        drawn = page.evaluate(MARKS)
        reaches = page.evaluate(REACHES)
    checked = 0
    for of, marks in drawn:
        values = [value for value, _ in marks]
        places = [place for _, place in marks]
        if len(set(values)) < 3:
            continue
        as_logs = [math.log(value) for value in values]
        best = residual(as_logs, places)
        if of == "runs":
            best = min(best, residual(values, places))
        assert best < 1.0, (of, best)
        checked += 1
    assert checked >= 2
    assert reaches
    for low, middle, high in reaches:
        assert low - 1 <= middle <= high + 1


BARS = """() => [...document.querySelectorAll('figure[data-of=parts]')].map((figure) =>
    [...figure.querySelectorAll('rect')].map((bar) => {
        const box = bar.getBoundingClientRect();
        return [Number(bar.dataset.value), box.left, box.right];
    }))"""


def test_the_bars_of_a_gap_follow_each_other(
    browser: sync_api.Browser, files: dict[str, str]
) -> None:
    with opened(browser, files["why"]) as page:
        figures = page.evaluate(BARS)
    assert len(figures) == 2
    for bars in figures:
        values, places, at = [], [], 0.0
        for value, left, right in bars[:-1]:
            begin, end = (left, right) if value >= 0 else (right, left)
            values += [at, at + value]
            places += [begin, end]
            at += value
        # A bar of the value 0 is drawn with a visible width, so small residuals are allowed.
        assert residual(values, places) < 2.5
        assert at == pytest.approx(bars[-1][0])


def test_the_plane_is_drawn_where_its_numbers_belong(
    browser: sync_api.Browser, files: dict[str, str]
) -> None:
    measured = pages.compared_run()
    known = json.loads(rendered(measured, comparisons(measured), View("json")))
    (compared,) = known["comparisons"]
    truth = {"system": (1.0, 1.0)} | {
        row["contender"]: tuple(1 + row["changes"][key]["estimate"] for key in ("wall", "peak"))
        for row in compared["rows"]
        if row["changes"]
    }
    with opened(browser, files["compare"]) as page:
        drawn = page.evaluate(
            """() => [...document.querySelectorAll('.plane svg > g')].flatMap((group) => {
                const circle = group.querySelector('circle');
                if (!circle) return [];
                const box = circle.getBoundingClientRect();
                return [[group.querySelector('.beside').textContent,
                         box.left + box.width / 2, box.top + box.height / 2]];
            })"""
        )
    places = {name.partition(" ")[0]: (x, y) for name, x, y in drawn}
    assert set(places) == set(truth)
    for axis in (0, 1):
        along = [places[name][axis] for name in truth]
        assert residual([math.log(truth[name][axis]) for name in truth], along) < 1.0
    assert places["quick"][0] < places["system"][0], "further left is faster"
    assert places["lean"][1] > places["system"][1], "lower is leaner"


def column(page: sync_api.Page, table: str, place: int) -> list[str]:
    return list(
        page.evaluate(
            "([table, place]) => [...document.querySelectorAll(`${table} tbody tr`)].filter("
            "(row) => !row.hidden).map((row) => row.cells[place].textContent)",
            [table, place],
        )
    )


def test_a_click_on_a_head_sorts_by_its_column(
    browser: sync_api.Browser, files: dict[str, str]
) -> None:
    table = "#numbers > .sheet:first-of-type table"
    with opened(browser, files["compare"]) as page:
        head = page.locator(f"{table} th", has_text="peak memory")
        button = head.locator("button")
        button.focus()
        page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == "ascending"
        names = [name.lstrip("▸ ").partition(" ")[0] for name in column(page, table, 0)]
        assert names[0] == "lean" and names[-1] == "quick"
        button.click()
        assert head.get_attribute("aria-sort") == "descending"
        again = [name.lstrip("▸ ").partition(" ")[0] for name in column(page, table, 0)]
        assert again[0] == "quick" and again[-1] == "lean"
        page.locator(f"{table} th button").first.click()
        assert page.locator(f"{table} [aria-sort]").count() == 1


def test_a_filter_keeps_the_rows_and_columns_with_its_text(
    browser: sync_api.Browser, files: dict[str, str]
) -> None:
    with opened(browser, files["large"]) as page:
        sheet = page.locator("#numbers .sheet", has=page.locator("table.tight")).first
        rows = sheet.get_by_label("Rows with")
        rows.fill("program 3")
        visible = sheet.locator("tbody tr:visible")
        assert visible.count() == 11
        assert all("program 3" in text for text in visible.locator("th").all_text_contents())
        rows.fill("")
        assert sheet.locator("tbody tr:visible").count() == 40
        sheet.get_by_label("Columns with").fill("mimalloc")
        heads = sheet.locator("thead th:visible").all_text_contents()
        assert len(heads) == 3 and all("mimalloc" in head for head in heads[1:])


def ground(page: sync_api.Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_the_theme_is_that_of_the_system_until_the_reader_chooses(
    browser: sync_api.Browser, files: dict[str, str]
) -> None:
    with opened(browser, files["compare"], color_scheme="dark") as page:
        dark = ground(page)
        page.get_by_label("Theme").select_option("light")
        light = ground(page)
        assert light == "rgb(255, 255, 255)" and dark != light
        page.emulate_media(color_scheme="light")
        page.get_by_label("Theme").select_option("dark")
        assert ground(page) == dark
        page.get_by_label("Theme").select_option("automatic")
        assert ground(page) == light
        page.get_by_label("Theme").select_option("dark")
        page.reload()
        assert ground(page) == dark, "the choice is remembered"
        page.emulate_media(media="print")
        assert ground(page) == light, "paper is white"


@pytest.mark.parametrize("name", ["compare", "why", "plan", "profile", "soak"])
def test_a_page_is_printed_with_everything_that_is_folded_away(
    browser: sync_api.Browser, files: dict[str, str], name: str
) -> None:
    with opened(browser, files[name]) as page:
        closed = page.locator("details:not([open])").count()
        assert closed
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details:not([open])").count() == 0
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("details:not([open])").count() == closed
        paper = page.pdf(format="A4")
    assert paper.startswith(b"%PDF") and len(paper) > 20_000


@pytest.mark.parametrize("name", ["compare", "why", "plan", "large", "profile", "soak"])
def test_everything_fits_on_paper(
    browser: sync_api.Browser, files: dict[str, str], name: str
) -> None:
    """The width of A4 with margins of 15 mm is 680 pixels."""
    with opened(browser, files[name], 680) as page:
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("document.documentElement.scrollWidth") <= 680


def test_the_keyboard_reaches_the_answer_and_the_sections(
    browser: sync_api.Browser, files: dict[str, str]
) -> None:
    with opened(browser, files["compare"]) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.url.endswith("#main")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.getAttribute('href')") == "#proof"
        page.keyboard.press("Enter")
        top = page.evaluate("document.getElementById('proof').getBoundingClientRect().top")
        assert top < 200


def test_the_raw_data_can_be_saved(browser: sync_api.Browser, files: dict[str, str]) -> None:
    measured = pages.compared_run()
    with opened(browser, files["compare"]) as page:
        with page.expect_download() as waiting:
            page.locator("a.download").click()
        saved = waiting.value
        assert saved.suggested_filename == f"cairn-{measured.run.id}-runs.csv"
        text = Path(saved.path()).read_text(encoding="utf-8")
    assert text == run_csv.render(measured.run, measured.samples)


def test_without_scripts_everything_can_be_read(
    browser: sync_api.Browser, files: dict[str, str]
) -> None:
    with opened(browser, files["compare"], java_script_enabled=False) as page:
        assert page.locator("figure circle").count() > 100
        assert page.locator("#numbers td").count() > 100
        assert page.locator("button").count() == 0


def test_hostile_names_run_nothing_and_change_nothing(
    browser: sync_api.Browser, files: dict[str, str]
) -> None:
    with opened(browser, files["hostile"]) as page:
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        for name in page.locator(".track[data-name] .name").all()[:40]:
            name.hover(force=True)
        assert page.evaluate("window.broken") is None
        assert page.locator("script").count() == 1
        assert page.locator("main img").count() == 0
        assert page.locator("body > *").evaluate_all("(all) => all.map((one) => one.tagName)") == [
            "A", "HEADER", "MAIN", "SCRIPT",
        ]  # fmt: skip


def test_a_large_page_opens_within_a_second(
    browser: sync_api.Browser, files: dict[str, str]
) -> None:
    assert Path(files["large"].removeprefix("file://")).stat().st_size <= 1_500_000
    took = []
    for _ in range(3):
        with opened(browser, files["large"]) as page:
            took.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert min(took) <= 1000


SHOWN = """() => [...document.querySelectorAll('.box')].filter((box) => box.style.display !== 'none')
    .map((box) => [box.dataset.n, Number(box.dataset.d), parseFloat(box.getAttribute('width'))])"""


def is_alike(shown: list[list[object]], others: list[list[object]]) -> bool:
    """Whether both drawings show the same boxes with the same widths."""
    return len(shown) == len(others) and all(
        one[:2] == other[:2] and one[2] == pytest.approx(other[2], abs=0.001)
        for one, other in zip(shown, others, strict=True)
    )


def test_a_flame_graph_zooms_and_searches_and_listens_to_keys(
    browser: sync_api.Browser, files: dict[str, str]
) -> None:
    with opened(browser, files["profile"]) as page:
        whole = page.evaluate(SHOWN)
        third = page.locator(".box[data-d='2']").first
        third.click()
        name = third.get_attribute("data-n")
        zoomed = page.evaluate(SHOWN)
        assert len(zoomed) < len(whole)
        for depth, shown in ((0, "_start"), (1, "main"), (2, name)):
            assert [one[0] for one in zoomed if one[1] == depth] == [shown]
        assert all(one[2] == pytest.approx(100) for one in zoomed if one[1] <= 2)
        page.keyboard.press("Escape")
        assert is_alike(page.evaluate(SHOWN), whole)
        page.keyboard.press("ArrowUp")
        assert page.evaluate("document.activeElement.dataset.n") == "main"
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.dataset.d") == "2"
        assert len(page.evaluate(SHOWN)) < len(whole)
        page.get_by_role("button", name="Show all").click()
        assert is_alike(page.evaluate(SHOWN), whole)
        page.get_by_label("Functions with").fill("MAIN")
        assert page.locator(".box.hit").count() == 1
        assert page.locator(".found").inner_text() == "100.0 % of the bytes"
        page.get_by_label("Functions with").fill("")
        assert page.locator(".box.hit").count() == 0
