"""The public names of every package (`__all__`, or imported as themselves, or else its modules) have docstrings.
`dph.train(config)` and the other stages as functions, loaded when they are first used.
"""

import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from _site_pages import public_names

import dph
from dph.config import load_settings
from dph.errors import SettingsError
from dph.runs.directory import read_metrics
from helpers import train_config

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


LIGHT = """
import sys, dph
assert {"train", "TrainConfig"} <= set(dph.__all__) and dph.__version__
dph.TrainConfig
assert not {"torch", "transformers", "pyarrow", "matplotlib"} & sys.modules.keys(), sorted(sys.modules)
"""


def test_importing_the_package_and_its_settings_loads_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", dph.__all__)
def test_every_public_name_is_there_and_documented(name):
    value = getattr(dph, name)
    assert isinstance(value, str) if name == "__version__" else value.__doc__
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        dph.nothing  # noqa: B018


def test_a_stage_is_a_function_of_its_settings(tmp_path):
    run = dph.train(train_config(tmp_path / "run", "grpo", {"steps": 1}))
    assert len(read_metrics(run)) == 1 and (run / "model").is_dir()


def test_settings_come_from_presets_and_overrides():
    settings = load_settings("train", ["countdown", "dph_js"], overrides={"out": "x", "optim": {"lr": 1e-3}})
    assert isinstance(settings, dph.TrainConfig)
    assert (settings.method, settings.out, settings.optim.lr, settings.loss.eta) == ("dph_js", "x", 1e-3, 0.6)
    with pytest.raises(SettingsError, match=r"rollout\.n is 0; it must be at least 1"):
        load_settings("train", overrides={"rollout": {"n": 0}})
    with pytest.raises(SettingsError, match="unknown key 'learning_rate'"):
        load_settings("train", overrides={"learning_rate": 1})
