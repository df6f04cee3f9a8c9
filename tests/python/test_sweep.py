"""Tests of the combinations of commands and parameters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.compare.sweep import WORKLOADS_MAX, expand, parse_parameter
from cairn.errors import UsageError


def names(*args: object, **kwargs: object) -> list[str]:
    return [workload.name for workload in expand(*args, shell=False, **kwargs)]  # type: ignore[arg-type]


def test_every_combination_appears_once_in_the_order_given() -> None:
    parameters = [("size", ("1", "2")), ("mode", ("a", "b"))]
    assert names([("prog", "--size={size}", "{mode}")], parameters) == [
        "prog --size=1 a",
        "prog --size=1 b",
        "prog --size=2 a",
        "prog --size=2 b",
    ]


def test_a_command_without_the_parameter_appears_once() -> None:
    assert names([("a", "{n}"), ("b",)], [("n", ("1", "2"))]) == ["a 1", "a 2", "b"]


def test_a_value_that_looks_like_a_parameter_is_left_alone() -> None:
    assert names([("p", "{x}", "{y}")], [("x", ("{y}",)), ("y", ("1",))]) == ["p '{y}' 1"]


def test_braces_that_are_no_parameter_stay() -> None:
    assert names([("awk", "{print $1}", "{n}")], [("n", ("1",))]) == ["awk '{print $1}' 1"]


def test_a_shell_line_is_shown_as_it_is() -> None:
    (workload,) = expand([("echo {n} | cat",)], [("n", ("1",))], shell=True)
    assert workload.name == "echo 1 | cat"


@pytest.mark.parametrize(
    "parameters",
    [
        [("unused", ("1",))],
        [("n", ("1",)), ("n", ("2",))],
        [("n", tuple(map(str, range(WORKLOADS_MAX + 1))))],
    ],
)
def test_parameters_that_cannot_be_combined_are_refused_with_a_sentence(
    parameters: list[tuple[str, tuple[str, ...]]],
) -> None:
    with pytest.raises(UsageError):
        expand([("p", "{n}")], parameters, shell=False)


@given(st.text(max_size=20))
def test_a_parameter_is_understood_or_refused(text: str) -> None:
    try:
        name, values = parse_parameter(text)
    except ValueError as error:
        assert repr(text) in str(error)
    else:
        assert f"{name}={','.join(values)}" == text
