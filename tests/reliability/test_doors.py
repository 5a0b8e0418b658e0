"""The doors of the package: no command runs the code that a file names, follows a link out of a folder, or prints what
a terminal would obey. The commands come from the command line itself; `hostile.CALLS` says how to call each."""

import ast
import contextlib
import json
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile import CALLS, JUDGED, KINDS, MAKE_RUNS, TOY, TRAIN, Mkdir, Trap, finished, named_code

import dph
from complaints import complaint, run
from dph.cli.arguments import read_words
from dph.cli.main import COMMANDS, main
from dph.config import STAGES, ModelConfig, load_settings
from dph.errors import SettingsError, UserError
from helpers import base_run, kept_aside

SOURCE = Path(dph.__file__).parent


def calls(h: Any) -> Iterator[tuple[Any, ...]]:
    """Every command with hostile files, with a hostile preset, and going on in a hostile run."""
    for command in COMMANDS:
        words = [(command, *each) for each in CALLS[command](h)]
        yield from words
        with contextlib.suppress(UserError):
            read_words(command, ["--preset", "x"])  # as every command that takes presets does
            yield from ((*words[0], flag, h.preset) for flag in ("--preset", "--config"))


def test_every_command_has_its_calls():
    assert CALLS.keys() == COMMANDS.keys() == STAGES.keys(), "say in tests/reliability/hostile.py how to call it"


# Code ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_file_names_is_never_run(tmp_path, monkeypatch, capsys, kind):
    """Every command, on files with code wherever they can name it, in a directory with modules to import."""
    trap = Trap(tmp_path, kind)
    monkeypatch.setattr("dph.stages.demo.run_jobs", lambda *_, **__: [])  # jobs: tests/process/test_jobs.py
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    resumed = (words for stage in MAKE_RUNS for words in trap.resumed(stage))
    for words in [*calls(trap), *resumed]:
        status, said = run(capsys, *words)
        assert status in (0, 2), said
        assert not trap.mark.exists(), f"{words} ran the code: {said}"


@pytest.mark.parametrize("stage", MAKE_RUNS)
@pytest.mark.parametrize("status", ["complete", "running"])
def test_a_run_that_is_resumed_runs_no_code_of_its_own(tmp_path, capsys, stage, status):
    """The sentence names the file and the code, and ends with the line to type, which works."""
    trap = Trap(tmp_path)
    for words in trap.resumed(stage):
        path = Path(words[-1])
        if words[1:3] != ("--resume", "--out"):
            continue
        if (path / "config.toml").read_text() == (finished(stage) / "config.toml").read_text():
            continue
        manifest = json.loads((path / "manifest.json").read_text())
        (path / "manifest.json").write_text(json.dumps(manifest | {"status": status}))
        message = complaint(capsys, *words)
        assert message.startswith(f"{path}/config.toml names code to run (") and not trap.mark.exists()
        line = message.rpartition("type: ")[2]
        assert line.startswith(f"dph {stage} --resume --out {path} --")
        assert any(flag in line for flag in ("--plugin", "--reward", "--model.trust-remote-code", "--model.attention"))


def test_the_line_of_a_refusal_can_be_typed(tmp_path, capsys):
    trap = Trap(tmp_path)
    words = next(words for words in trap.resumed("verify") if words[1] == "--resume")
    line = complaint(capsys, *words).rpartition("type: ")[2].split()
    assert not trap.mark.exists()
    run(capsys, *line[1:])
    assert trap.mark.exists()


@pytest.mark.parametrize("command", [name for name, one in STAGES.items() if hasattr(one, "plugins")])
def test_a_preset_or_a_settings_file_says_what_it_needs_and_a_flag_allows_it(tmp_path, capsys, command):
    """`plugins` of a file is refused in every command that has the setting, and `--plugin` allows this file only."""
    mark, evil, good = tmp_path / "ran", tmp_path / "evil.py", tmp_path / "good.py"
    evil.write_text(f"open({str(mark)!r}, 'w').close()\n")
    good.write_text("")
    (tmp_path / "a.toml").write_text(f'plugins = ["{evil}"]\n')
    (tmp_path / "a.yaml").write_text(f"plugins: ['{evil}']\n")
    for words in (("--preset", "a.toml"), ("--config", "a.toml"), ("--preset", "a.yaml")):
        for flags in ((), ("--plugin", good)):
            status, said = run(capsys, command, words[0], tmp_path / words[1], *flags)
            assert status == 2 and not mark.exists()
            assert "names code to run (plugins = " in said and said.rstrip().endswith(f"--plugin {evil}")
    if command != "demo":  # whose runs import it
        run(capsys, command, "--config", tmp_path / "a.toml", "--plugin", os.path.relpath(evil))
        assert mark.exists()


def test_every_setting_that_names_code_is_refused_in_a_file_and_in_a_program(tmp_path):
    evil = tmp_path / "evil.py"
    evil.write_text("")
    seen = set()
    for stage in STAGES:
        for name, value in named_code(stage, evil).items():
            *tables, key = name.split(".")
            text = f"[{tables[0]}]\n" if tables else ""
            (tmp_path / "a.toml").write_text(f"{text}{key} = {json.dumps(value)}\n")
            with pytest.raises(SettingsError, match=f"names code to run \\({name} = "):
                load_settings(stage, files=[tmp_path / "a.toml"])
            named = {tables[0]: {key: value}} if tables else {key: value}
            load_settings(stage, files=[tmp_path / "a.toml"], overrides=named)
            seen.add(name)
    assert seen == {
        "plugins",
        "reward.function",
        "model.trust_remote_code",
        "model.attention",
        "trust_remote_code",
        "function",
    }


def test_a_reward_function_of_a_certification_set_is_not_the_programs(tmp_path):
    from dph.config import CertifyConfig, CertifyStageConfig
    from dph.stages.certify import certify

    path = tmp_path / "run"
    shutil.copytree(kept_aside(), path)
    settings = (path / "config.toml").read_text()
    (path / "config.toml").write_text(settings.replace('function = ""', 'function = "a.py:f"'))
    config = CertifyStageConfig(base=str(path), checkpoints=(str(base_run()),), certify=CertifyConfig(epsilon=0.1))
    with pytest.raises(SettingsError, match=r"reward\.function = a\.py:f"):
        certify(config)


def test_the_traps_work_if_a_flag_opens_them(tmp_path, capsys):
    trap = Trap(tmp_path, "code of the model")
    words = ("eval", *TOY, "--model.path", base_run() / "model")
    run(capsys, *words, "--plugin", trap.evil, "--reward", f"{trap.evil}:reward", "--out", tmp_path / "judged")
    trap.mark.unlink()
    spoiled = Path(trap.runs["presample"]) / "model"
    run(capsys, "eval", *TOY, "--model.path", spoiled, "--model.trust-remote-code", "--out", tmp_path / "new")
    trap.mark.unlink()
    with pytest.raises(FileExistsError):
        trap.mark.mkdir()
        pickle.loads(pickle.dumps(Mkdir(str(trap.mark))))


LOADERS = {
    "build.py": {"load_plugin"},
    "verifiers/function_worker.py": {"load_function"},  # called by FunctionVerifier and Trial, here or in a worker
}
"""The functions that load code of others; FunctionVerifier, load_plugin and the reading of models ask `require`."""
OWN = {"process/user_code.py", "registry.py", "__init__.py", "measure/__init__.py", "cli/main.py", "cli/loaded.py"}
"""Files that import modules of this package by a variable name, or hold the import itself."""
INSTALLED = {"doctor.py", "runs/tracking.py", "verifiers/sandbox/worker.py"}
"""Files that import an installed library, or a worker of ours, by a name that no file gives."""


def test_code_is_loaded_at_the_known_places_only():
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            for node in ast.walk(function):
                name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
                literal = isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
                if name in ("import_file", "import_module", "exec_module", "run_path") and not literal:
                    found.setdefault(str(path.relative_to(SOURCE)), set()).add(function.name)
    assert {file: names for file, names in found.items() if file not in OWN | INSTALLED} == LOADERS
    asking = {"build.py": "load_plugin", "verifiers/function.py": "__init__", "models/loading.py": "_reading"}
    asking |= {"verifiers/trial.py": "__init__"}
    for file, name in asking.items():
        tree = ast.parse((SOURCE / file).read_text())
        [body] = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name]
        asked = [n for n in ast.walk(body) if isinstance(n, ast.Call) and ast.unparse(n.func) == "require"]
        assert asked, f"{file}:{name} does not ask `require`"
    assert ModelConfig().trust_remote_code is False


@pytest.mark.parametrize("command", sorted(MAKE_RUNS))
def test_a_new_way_to_code_inside_a_command_is_closed_too(tmp_path, capsys, monkeypatch, command):
    """A stage that took a plug-in, a reward function or a model's code from somewhere without asking gets a refusal."""
    from dph import build
    from dph.models.loading import load_tokenizer
    from dph.verifiers.function import FunctionVerifier

    evil, asked = tmp_path / "evil.py", []
    evil.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\ndef f(*_, **__): return 1.0\n")

    def careless(*_: Any, **__: Any) -> None:
        for way in (
            lambda: build.load_plugin(str(evil)),
            lambda: FunctionVerifier(function=f"{evil}:f", in_process=True),
            lambda: load_tokenizer(ModelConfig(str(base_run() / "model"), trust_remote_code=True)),
        ):
            with pytest.raises(SettingsError, match="only a flag can allow"):
                way()
            asked.append(way)

    monkeypatch.setattr("dph.cli.main._call", careless)
    own = {"verify": JUDGED[1:], "train": TRAIN[1:], "sft": (), "presample": (*TOY, "--threshold", "1")}
    words = own.get(command, TOY)
    main([command, *words, "--out", str(tmp_path / "out")])
    assert len(asked) == 3 and not (tmp_path / "ran").exists()
