"""The public names of every package (`__all__`, or imported as themselves, or else its modules) have docstrings."""

import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest
from _site_pages import public_names

import dph

ENGINES = ("trl", "verl")
PACKAGES = [
    "dph",
    *(
        module.name
        for module in pkgutil.walk_packages(dph.__path__, "dph.")
        if module.ispkg and not any(f".integrations.{engine}" in module.name for engine in ENGINES)
    ),
]


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_is_documented_and_its_names_exist(name):
    package = importlib.import_module(name)
    assert inspect.getdoc(package), f"{name} has no docstring"
    modules = [module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_")]
    names = getattr(package, "__all__", public_names(Path(package.__path__[0], "__init__.py")) or modules)
    assert names
    assert len(names) == len(set(names))
    for public in (part for part in names if part not in ENGINES):  # which need their engine
        value = getattr(package, public, None) or importlib.import_module(f"{name}.{public}")
        if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value):
            said = value.__doc__ or ""
            assert said and not said.startswith(f"{public}("), f"{name}.{public} has no docstring"  # a dataclass's own
