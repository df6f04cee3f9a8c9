"""A flame graph of call stacks as one SVG file that needs no other file and no network.

Each function is a box below its caller, so that the widest boxes are on the first screen. The width
of a box is its share of the allocated bytes. A click zooms into a box, and the field at the top
marks the functions whose names contain its text. Without scripts, the picture and the texts of the
boxes remain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from cairn import units
from cairn.profile.callers import Branch, Stack, tree
from cairn.profile.demangle import plain, without_arguments
from cairn.report.formatting import printable

WIDTH, ROW = 1200, 18
_TOP = 60
_SMALLEST = 0.0005
"""A box is left out if it is less than this share of the picture wide."""
_DEPTH_MOST = 128
_LINES_MOST = 5
"""The most source lines of a function that the text of its box names."""
_CHARACTER = 6.6
"""The width of a character of the font, in pixels."""
_COLORS = ("#e8a06c", "#e9b872", "#dd8f5f", "#efc58a", "#e3a97f", "#d99a55")

_SCRIPT = """
const svg = document.documentElement, boxes = [...svg.querySelectorAll('g.box')];
const all = {x: 0, w: 1, d: -1};
let zoom = all;
function draw() {
  for (const g of boxes) {
    const b = g.dataset, x = +b.x, w = +b.w, d = +b.d;
    const above = d < zoom.d && x <= zoom.x + 1e-9 && x + w >= zoom.x + zoom.w - 1e-9;
    const inside = d >= zoom.d && x >= zoom.x - 1e-9 && x + w <= zoom.x + zoom.w + 1e-9;
    g.style.display = above || inside ? '' : 'none';
    const left = above ? 0 : (x - zoom.x) / zoom.w * WIDTH;
    const wide = above ? WIDTH : w / zoom.w * WIDTH;
    const r = g.querySelector('rect'), t = g.querySelector('text');
    r.setAttribute('x', left); r.setAttribute('width', Math.max(wide - 0.5, 0.2));
    r.style.opacity = above ? 0.5 : 1;
    t.setAttribute('x', left + 3);
    const most = Math.floor((wide - 6) / CHARACTER), n = b.n;
    t.textContent = most < 3 ? '' : n.length > most ? n.slice(0, most - 1) + '\\u2026' : n;
  }
}
function pick(g) {
  zoom = g ? {x: +g.dataset.x, w: +g.dataset.w, d: +g.dataset.d} : all;
  draw();
}
function search(text) {
  let sum = 0; const ends = [];
  for (const g of boxes) {
    const hit = text !== '' && g.dataset.n.toLowerCase().includes(text.toLowerCase());
    g.classList.toggle('hit', hit);
    const x = +g.dataset.x, w = +g.dataset.w;
    if (hit && !ends.some(([a, b]) => x >= a - 1e-9 && x + w <= b + 1e-9)) {
      ends.push([x, x + w]); sum += w;
    }
  }
  document.getElementById('found').textContent =
    text === '' ? '' : (100 * sum).toFixed(1) + ' % of the bytes';
}
for (const g of boxes) {
  g.addEventListener('click', () => pick(g));
  g.addEventListener('keydown', e => { if (e.key === 'Enter') pick(g); });
}
svg.addEventListener('keydown', e => { if (e.key === 'Escape') pick(null); });
document.getElementById('all').addEventListener('click', () => pick(null));
document.getElementById('search').addEventListener('input', e => search(e.target.value));
"""


def flame_graph(stacks: Sequence[Stack], title: str, *, by_line: bool = False) -> str:
    """The flame graph of the allocated bytes, as SVG. Boxes below _SMALLEST are left out.

    by_line: whether each source line of a function has its own box. Otherwise a function has one
        box, and the text of the box names its source lines.
    """
    root = tree(stacks, by_line=by_line)
    whole = root.sums.allocated.bytes
    boxes = list(_boxes(root, whole, 0.0, 0)) if whole else []
    depth = max((box[2] for box in boxes), default=0) + 1
    height = _TOP + depth * ROW + 10
    drawn = "".join(map(_box, boxes))
    script = _SCRIPT.replace("WIDTH", str(WIDTH)).replace("CHARACTER", str(_CHARACTER))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="flame graph">\n'
        "<style>text{font:11px monospace;pointer-events:none}.box{cursor:pointer}"
        ".box:focus rect,.box:hover rect{stroke:#222}.hit rect{fill:#7a6fd0}"
        "input{font:12px monospace}#all{cursor:pointer;pointer-events:auto}</style>\n"
        f'<rect width="{WIDTH}" height="{height}" fill="#fdfaf5"/>\n'
        f'<text x="10" y="20" style="font-size:14px">{_text(title)}</text>\n'
        f'<text x="10" y="42">{escape(units.size(round(whole)))} allocated; click a box to zoom'
        "</text>\n"
        '<text id="all" x="420" y="42" style="text-decoration:underline">show all</text>\n'
        '<foreignObject x="500" y="26" width="320" height="26"><input id="search" '
        'xmlns="http://www.w3.org/1999/xhtml" placeholder="search for a function" '
        'style="width:300px"/></foreignObject>\n'
        '<text id="found" x="830" y="42"></text>\n'
        f"{drawn}<script><![CDATA[{script}]]></script>\n</svg>\n"
    )


Box = tuple[Branch, float, int, float]
"""A branch, and the left end, the depth and the width of its box. The left end and the width are
shares of the picture's width."""


def _boxes(branch: Branch, whole: float, left: float, depth: int) -> Iterator[Box]:
    if depth == _DEPTH_MOST:
        return
    for one in branch.ordered:
        width = one.sums.allocated.bytes / whole
        if width >= _SMALLEST:
            yield one, left, depth, width
            yield from _boxes(one, whole, left, depth + 1)
        left += width


def _box(box: Box) -> str:
    branch, left, depth, width = box
    full = printable(branch.frame.function)
    line = f" ({printable(branch.frame.place)})" if branch.frame.line else ""
    name = without_arguments(plain(full)) + line
    sums = branch.sums
    part = f"{100 * width:.2f} %"
    told = (
        f"{full}{_lines(branch)}\n{part}, {units.size(round(sums.allocated.bytes))} in "
        f"{units.count(round(sums.allocated.blocks))} blocks; "
        f"{units.size(round(sums.peak.bytes))} at the peak, "
        f"{units.size(round(sums.live.bytes))} at the end"
    )
    color = _COLORS[sum(full.encode("utf-8", "replace")) % len(_COLORS)]
    x, wide, y = left * WIDTH, width * WIDTH, _TOP + depth * ROW
    most = int((wide - 6) / _CHARACTER)
    shown = "" if most < 3 else name if len(name) <= most else name[: most - 1] + "…"
    return (
        f'<g class="box" tabindex="0" data-x="{left:.9f}" data-w="{width:.9f}" data-d="{depth}" '
        f'data-n="{_text(name)}"><title>{_text(told)}</title>'
        f'<rect x="{x:.2f}" y="{y}" width="{max(wide - 0.5, 0.2):.2f}" height="{ROW - 1}" '
        f'fill="{color}"/><text x="{x + 3:.2f}" y="{y + 13}">{_text(shown)}</text></g>\n'
    )


def _lines(branch: Branch) -> str:
    """The source lines of a function that allocate the most bytes; "" if no line is known."""
    most = sorted(branch.lines.items(), key=lambda one: (-one[1], one[0]))
    shown = [printable(line) for line, _ in most[:_LINES_MOST]]
    more = f" and {len(most) - _LINES_MOST} more lines" if len(most) > _LINES_MOST else ""
    return f"\nat {', '.join(shown)}{more}" if shown else ""


def _text(text: str) -> str:
    """The text for XML. Unprintable characters are escaped, except line ends."""
    return escape("\n".join(map(printable, text.split("\n"))))
