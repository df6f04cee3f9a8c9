"""Faults for Python: those of mutmut, and two others.

This module uses only the operators of mutmut, and not its program. That program changes only
functions without decorators, and only within its own process. But the faults here are also in
commands and properties, and the processes that tests start must find the changed file on disk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_string

Operator = Callable[[cst.CSTNode], Iterable[cst.CSTNode]]


def negated(node: cst.CSTNode) -> Iterable[cst.CSTNode]:
    """Changes `if x` to `if not (x)`. Leaves loops alone, because most would never end."""
    if isinstance(node, (cst.If, cst.CompIf)):
        inside = node.test.with_changes(
            lpar=[cst.LeftParen(), *node.test.lpar], rpar=[*node.test.rpar, cst.RightParen()]
        )
        yield node.with_changes(
            test=cst.UnaryOperation(cst.Not(), inside),
            whitespace_before_test=cst.SimpleWhitespace(" "),
        )


def dropped(node: cst.CSTNode) -> Iterable[cst.CSTNode]:
    """Changes a call to `pass`, if the value of the call is not used."""
    if isinstance(node, cst.Expr) and isinstance(node.value, cst.Call):
        yield cst.Pass(semicolon=node.semicolon)


def once(node: cst.CSTNode) -> Iterable[cst.CSTNode]:
    """Yields the first of the texts to which mutmut changes a string.

    The other texts differ from the string only in upper and lower case. Such a change is no fault
    in a name whose case does not matter, such as the name of an encoding.
    """
    if isinstance(node, cst.BaseString):
        yield from list(operator_string(node))[:1]


OPERATORS: list[tuple[type, str, Operator]] = [
    *(
        (kind, operator.__name__.removeprefix("operator_"), operator)
        for kind, operator in mutation_operators
        if operator is not operator_string
    ),
    (cst.BaseString, "string", once),
    (cst.CSTNode, "negated", negated),
    (cst.Expr, "dropped", dropped),
]


class Changes(cst.CSTVisitor):
    """Collects the possible changes, as (node, kind of fault, new node).

    It skips annotations, decorators, options of classes, imports, docstrings and `__all__`.
    """

    def __init__(self) -> None:
        self.found: list[tuple[cst.CSTNode, str, cst.CSTNode]] = []
        self.skipped: set[cst.CSTNode] = set()

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Visits a node. Returns whether to visit its children."""
        if isinstance(node, (cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom)):
            return False
        if isinstance(node, cst.ClassDef):
            self.skipped.update(node.keywords)
        if node in self.skipped:
            return False
        if isinstance(node, cst.Expr) and isinstance(node.value, (cst.BaseString, cst.Ellipsis)):
            return False
        if isinstance(node, cst.Assign) and any(
            isinstance(target.target, cst.Name) and target.target.value == "__all__"
            for target in node.targets
        ):
            return False
        for kind, name, operator in OPERATORS:
            if isinstance(node, kind):
                self.found.extend((node, name, instead) for instead in operator(node))
        return True


def replaced(module: cst.Module, node: cst.CSTNode, instead: cst.CSTNode) -> str:
    """Returns the text of the module with one node replaced."""
    changed = module.deep_replace(node, instead)
    assert isinstance(changed, cst.Module)
    return changed.code


def candidates(text: str) -> dict[int, dict[str, list[Callable[[], str]]]]:
    """Returns every fault that a file can have, by the line on which its expression begins."""
    wrapper = MetadataWrapper(cst.parse_module(text))
    places = wrapper.resolve(PositionProvider)
    changes = Changes()
    wrapper.module.visit(changes)
    result: dict[int, dict[str, list[Callable[[], str]]]] = defaultdict(lambda: defaultdict(list))
    for node, kind, instead in changes.found:
        if node in places:
            result[places[node].start.line][kind].append(
                partial(replaced, wrapper.module, node, instead)
            )
    return result
