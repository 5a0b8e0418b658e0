"""The one registry pattern: names, settings as text, and what it refuses."""

import pytest

from dph.errors import UserError
from dph.registry import Registry, read_option


def registry() -> Registry:
    made: Registry = Registry("shape")

    @made.register("square")
    def square(given: float, *, side: float = 1.0, count: int = 1, filled: bool = False, label: str = "") -> tuple:
        return given, side, count, filled, label

    @made.register("line")
    def line(*, length: float) -> float:
        return length

    return made


def test_names_are_listed_and_unknown_ones_refused():
    shapes = registry()
    assert shapes.names() == list(shapes) == ["line", "square"] and "line" in shapes and "circle" not in shapes
    with pytest.raises(UserError, match=r"no shape is named 'circle'; known are: line, square"):
        shapes["circle"]


def test_one_name_has_one_implementation():
    shapes = registry()
    same = shapes["line"]
    shapes.register("line")(same)  # a plug-in's file that is loaded twice
    with pytest.raises(UserError, match="there is already a shape named 'line'"):
        shapes.register("line")(lambda: 0)
    assert shapes["line"] is same


def test_settings_are_read_as_the_types_of_the_parameters():
    square = registry().bind("square", {"side": "2", "filled": "True", "label": "7"}, count=3, unknown=1)
    assert square(0.5) == (0.5, 2.0, 3, True, "7")


def test_settings_that_do_not_fit_are_named():
    shapes = registry()
    with pytest.raises(UserError, match=r"shape 'square' does not take the option 'size'; it takes: count, filled"):
        shapes.bind("square", {"size": "1"})
    with pytest.raises(UserError, match="shape 'line' needs the option 'length'"):
        shapes.bind("line", {})
    with pytest.raises(UserError, match=r"count of shape 'square' must be a whole number, not '1\.5'"):
        shapes.bind("square", {"count": "1.5"})
    with pytest.raises(UserError, match="does not take the option 'side'"):
        shapes.bind("square", {"side": "2"}, side=1.0)  # it comes from elsewhere
    assert read_option("false", bool, "x") is False
