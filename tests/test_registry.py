"""The one registry pattern: names, settings as text, and what it refuses."""

import subprocess
import sys

import pytest

from dph.errors import SettingsError
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
    assert list(shapes) == ["line", "square"] and "line" in shapes and "circle" not in shapes
    with pytest.raises(SettingsError, match="'circle'; known are: line, square"):
        shapes["circle"]


def test_one_name_has_one_implementation():
    shapes = registry()
    same = shapes["line"]
    shapes.register("line")(same)  # a plug-in's file that is loaded twice
    with pytest.raises(SettingsError, match="there is already a shape named 'line'"):
        shapes.register("line")(lambda: 0)
    assert shapes["line"] is same


@pytest.fixture
def late(tmp_path, monkeypatch):
    """A registry with names that a module registers once it is imported, which the file beside it records."""
    (tmp_path / "late_shapes.py").write_text(
        "from test_registry import SHAPES\nSHAPES.register('disc')(print)\nSHAPES.register('ring')(max)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "late_shapes", raising=False)
    monkeypatch.setattr(sys.modules["test_registry"], "SHAPES", Registry("shape"))
    made = sys.modules["test_registry"].SHAPES
    made.declare("late_shapes", "disc", "ring", "lost")
    return made


SHAPES: Registry = Registry("shape")


def test_announced_names_are_imported_at_their_first_use(late):
    assert list(late) == ["disc", "lost", "ring"] and "ring" in late
    assert "late_shapes" not in sys.modules
    assert late["ring"] is max and "late_shapes" in sys.modules
    with pytest.raises(SettingsError, match="no shape is named 'lost'"):
        late["lost"]


def test_an_announced_name_is_taken(late):
    with pytest.raises(SettingsError, match="there is already a shape named 'disc'"):
        late.register("disc")(min)
    assert late["disc"] is print


ALL = """
import pkgutil, importlib
from dph.tasks import TASKS
from dph.verifiers.protocol import VERIFIERS
import dph.tasks, dph.verifiers
before = [*TASKS], [*VERIFIERS]
for package in (dph.tasks, dph.verifiers):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
after = [*TASKS], [*VERIFIERS]
assert before == after, (before, after)
assert all(callable(registry[name]) for registry in (TASKS, VERIFIERS) for name in registry)
"""


def test_every_task_and_verifier_is_announced():
    done = subprocess.run([sys.executable, "-c", ALL], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_settings_are_read_as_the_types_of_the_parameters():
    square = registry().bind("square", {"side": "2", "filled": "True", "label": "7"}, count=3, unknown=1)
    assert square(0.5) == (0.5, 2.0, 3, True, "7")


def test_a_function_registered_with_an_implementation_is_bound_under_its_name():
    chosen = registry().bind("line", {}, lambda *, side, count=2: (side, count), side=1.0)
    assert chosen() == (1.0, 2)


@pytest.mark.parametrize(
    ("name", "options", "values", "fragment"),
    [
        ("square", {"size": "1"}, {}, "'size'.*; it takes: count, filled"),
        ("line", {}, {}, "'line' needs the option 'length'"),
        ("square", {"count": "1.5"}, {}, "a whole number, not '1.5'"),
        ("square", {"side": "2"}, {"side": 1.0}, "does not take the option 'side'"),  # it comes from elsewhere
    ],
)
def test_settings_that_do_not_fit_are_named(name, options, values, fragment):
    with pytest.raises(SettingsError, match=fragment):
        registry().bind(name, options, **values)


def test_an_option_is_read_as_its_type():
    assert read_option("false", bool, "x") is False
