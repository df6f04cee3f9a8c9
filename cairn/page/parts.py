"""The parts of a page, as frozen values. The templates draw them and add no text of their own.

Places in a drawing are percentages of its width or height, so that a drawing fits every screen
without a script. Each mark also has the number that it stands for, which the template writes beside
it as `data-value`, `data-low` and `data-high`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct, field

from cairn.report.tables import Table


class Tick(Struct, frozen=True):
    """A labelled place on an axis."""

    at: float
    text: str
    is_minor: bool = False
    """Whether a narrow screen may leave out the label."""


class Axis(Struct, frozen=True):
    """The ticks of an axis, its title, and the place of the reference line if there is one."""

    ticks: tuple[Tick, ...]
    title: str
    reference: float | None = None


class Dot(Struct, frozen=True):
    """A number as a dot."""

    at: float
    value: float
    kind: Literal["run", "estimate", "median"]
    height: float = 15
    """The distance from the upper edge of the track, in pixels."""
    is_beyond: bool = False
    """Whether the number lies beyond the end of the axis. The dot is then at this end."""


class IntervalLine(Struct, frozen=True):
    """An interval as a line."""

    at_low: float
    at_high: float
    low: float
    high: float


class Rectangle(Struct, frozen=True):
    """A number as a bar from one place to another."""

    at: float
    width: float
    value: float
    kind: str
    """The word that chooses its colour and pattern in the style sheet."""
    title: str = ""


class Track(Struct, frozen=True):
    """One row of a drawing: a name, marks on an axis, and the number as text."""

    name: str
    says: str = ""
    good: bool | None = None
    is_proven: bool = True
    """Whether the estimate is drawn as a filled dot."""
    dots: tuple[Dot, ...] = ()
    reach: IntervalLine | None = None
    bars: tuple[Rectangle, ...] = ()


class Drawing(Struct, frozen=True, kw_only=True):
    """The texts of each kind of drawing."""

    title: str
    says: str
    """The sentences below the title: how to read the drawing."""


class Tracks(Drawing, frozen=True, kw_only=True):
    """A drawing with a row for each contender, program or part."""

    kind: ClassVar[str] = "tracks"
    of: str
    """The kind of the marks, for tests: "runs", "paired", "means", "ratios", "parts" and so on."""
    axis: Axis
    tracks: tuple[Track, ...]
    table: Table | None = None
    """The numbers of the drawing as a table."""
    metric: str = ""
    workload: int = 0
    contender: str = ""


Side = Literal["right", "left", "above", "below"]


class PlanePoint(Struct, frozen=True):
    """A contender in the plane of time and memory."""

    key: str
    """The letter inside the point."""
    name: str
    short: str
    """The name as it stands beside the point."""
    across: float
    down: float
    time: float
    memory: float
    time_reach: IntervalLine | None
    memory_reach: IntervalLine | None
    is_beaten: bool = False
    label: Side = "right"
    """The side on which the name stands."""


class Area(Drawing, frozen=True, kw_only=True):
    """A drawing with two axes."""

    across: Axis
    up: Axis
    """The axis of the height. The places of its ticks are measured from the upper edge."""
    table: Table
    """The numbers of the drawing as a table."""


class TimeMemoryPlane(Area, frozen=True, kw_only=True):
    """The plane of time and memory. The best corner is at the lower left."""

    kind: ClassVar[str] = "plane"
    points: tuple[PlanePoint, ...]
    front: str
    """The line that joins the contenders of the front, as points of a polyline; may be empty."""
    workload: int = 0


class Curve(Struct, frozen=True):
    """A line through numbers over time, as points of a polyline."""

    name: str
    points: str
    style: str
    band: str = ""
    """The polygon of its interval; may be empty."""


class Curves(Area, frozen=True, kw_only=True):
    """Numbers over time."""

    kind: ClassVar[str] = "curves"
    curves: tuple[Curve, ...]
    of: str = "curves"
    """The kind of drawing: "curves" is memory over time, and "rates" are system calls over time."""


class FlameBox(Struct, frozen=True):
    """A function in a flame graph, with all that it called."""

    left: float
    """The left end of the box, as a share of the width of the picture."""
    width: float
    depth: int
    name: str
    says: str
    """The whole name of the function, and its numbers."""
    value: float
    """The allocated bytes."""
    color: int


class FlameGraph(Drawing, frozen=True, kw_only=True):
    """Call stacks as boxes: each function lies below its caller."""

    kind: ClassVar[str] = "flame"
    boxes: tuple[FlameBox, ...]
    depth: int
    """The number of rows."""
    table: Table


class Sentences(Struct, frozen=True):
    """Sentences: as paragraphs, as a list, or as warnings."""

    kind: ClassVar[str] = "sentences"
    texts: tuple[str, ...]
    style: Literal["lead", "plain", "list", "notes"] = "plain"


class Sheet(Struct, frozen=True):
    """A table, with a caption for readers who cannot see where it stands."""

    kind: ClassVar[str] = "sheet"
    table: Table
    caption: str


class Download(Struct, frozen=True):
    """Raw data inside the page, as a link that saves it as a file."""

    kind: ClassVar[str] = "download"
    name: str
    link: str
    says: str


class Code(Struct, frozen=True):
    """A command to copy."""

    kind: ClassVar[str] = "code"
    text: str


class SideBySide(Struct, frozen=True):
    """Drawings that stand side by side where there is room."""

    kind: ClassVar[str] = "beside"
    items: tuple[Item, ...]


class Fold(Struct, frozen=True):
    """Items behind a title that opens them."""

    kind: ClassVar[str] = "fold"
    title: str
    items: tuple[Item, ...]
    is_open: bool = False


Item = (
    Tracks
    | TimeMemoryPlane
    | Curves
    | FlameGraph
    | Sentences
    | Sheet
    | Download
    | Code
    | SideBySide
    | Fold
)


class Topic(Struct, frozen=True):
    """A section of a page with a heading."""

    key: str
    """The name of its anchor; letters, digits and dashes only."""
    title: str
    items: tuple[Item, ...]


class Page(Struct, frozen=True):
    """A whole page. Its first screen has the answer, and the topics follow."""

    title: str
    origin: str
    """The command, the date and the run."""
    answer: tuple[Item, ...]
    topics: tuple[Topic, ...]
    facts: tuple[tuple[str, str], ...] = field(default=())
    """Names and texts below the answer, such as the aim and the limits."""
