"""No command prints a character that a terminal would obey, whatever files, their names and the command line hold."""

import ast
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hostile import CALLS, JUDGED, MAKE_RUNS, finished

import dph
from dph.cli.main import COMMANDS, main
from dph.config import STAGES, every_setting
from dph.errors import RESUMED, json_for_terminal, one_line, visible
from dph.process.progress import put, say, show
from helpers import base_run

SOURCE = Path(dph.__file__).parent
EVIL = "\x1b]0;owned\x07\x9b2J\N{RIGHT-TO-LEFT OVERRIDE}\N{LEFT-TO-RIGHT ISOLATE}\x08\x7f\x85\N{LINE SEPARATOR}\r"
"""A window's title, erasing, reordering, overwriting, and lines that are none."""
READABLE = "é 漢字 ≥ 3 \N{GRINNING FACE} क्\N{ZERO WIDTH JOINER}ष می\N{ZERO WIDTH NON-JOINER}خواهم"


def obeyed(text: str) -> str:
    """The characters in a printed text that a terminal would obey, besides line ends and tabs."""
    kept = "\n\t\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"
    return "".join(c for c in text if c not in kept and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp"))


def printed(capsys: pytest.CaptureFixture[str], *words: Any) -> str:
    """All that a command prints."""
    with contextlib.suppress(SystemExit):
        main([str(word) for word in words])
    out, said = capsys.readouterr()
    return out + said


class Loud:
    """Files of every kind that hold the evil text, in a folder that is named by it."""

    def __init__(self, folder: Path) -> None:
        self.plain = folder
        self.folder = folder / EVIL.replace("\r", "")
        self.folder.mkdir()
        self.numbers = iter(range(1000))
        self.runs = {stage: self._run(stage) for stage in MAKE_RUNS}
        self.model = self.folder / "model"
        shutil.copytree(base_run() / "model", self.model)
        self.data = self.folder / "data.jsonl"
        row = {"id": f"a{EVIL}", "prompt": f"easy 1 {EVIL}", "response": f" yes{EVIL}", "correct": True, "sample": 0}
        rows = [row | {"answer": f"yes{EVIL}", "verifier": "exact"} | {"id": f"{n}{EVIL}"} for n in range(2)]
        self.data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.preset = self.folder / "preset.toml"
        self.preset.write_text(tomli_w.dumps({EVIL: 1}))

    def new(self) -> str:
        return str(self.folder / f"new-{next(self.numbers)}")

    def _run(self, stage: str) -> str:
        path = self.folder / stage
        shutil.copytree(finished(stage), path)
        return str(path)

    def data_files(self) -> Iterator[Path]:
        """Rows that are wrong in different ways, and files that are none."""
        good = json.loads(self.data.read_text().splitlines()[0])
        wrong: list[Any] = [
            [good, good],
            [good | {"verifier": EVIL}],
            [good | {EVIL: 1}, {EVIL: 2}],
            [good | {"prompt": [{"role": EVIL, "content": EVIL}]}],
            [good | {"answer": {EVIL: EVIL}}],
            [good | {"db": EVIL, "verifier": "sql"}],
            [{"task_id": EVIL, "score": EVIL}],
            [{"id": EVIL, "correct": EVIL}],
            [{"problem_id": EVIL, "sample": 0, "correct": 1, "answer": EVIL}] * 2,
            [{"query": EVIL, "question": EVIL, "answer": EVIL}],
        ]
        texts = ["".join(json.dumps(row) + "\n" for row in rows) for rows in wrong]
        for number, text in enumerate([*texts, EVIL, f'{{"id": {EVIL}}}\n', f"a,b\n{EVIL},{EVIL}\n"]):
            file = self.folder / f"rows-{number}.jsonl"
            file.write_text(text)
            yield file
        csv = self.folder / "rows.csv"
        csv.write_text(f'id,question,answer,correct,{EVIL.splitlines()[0]}\n"{EVIL}",{EVIL.splitlines()[0]},5,1,2\n')
        yield csv

    def spoiled(self, stage: str) -> Iterator[Path]:
        """Copies of a run in which one text of its files after the other is the evil one."""
        for file in ("manifest.json", "config.toml", "scores.json", "verdicts.jsonl", "metrics.jsonl"):
            if not (finished(stage) / file).is_file():
                continue
            text = (finished(stage) / file).read_text()
            first = text.splitlines()[0] if file.endswith(".jsonl") else text
            tree = tomllib.loads(text) if file == "config.toml" else json.loads(first)
            for place in _texts(tree):
                path = self.folder / f"{stage}-{next(self.numbers)}"
                shutil.copytree(finished(stage), path)
                changed = _with(tree, place)
                written = tomli_w.dumps(changed) if file == "config.toml" else json.dumps(changed)
                (path / file).write_text(written + "\n")
                yield path

    def models(self) -> Iterator[Path]:
        """Models whose files hold the evil text."""
        template = "{{ raise_exception('" + EVIL.replace("\r", "") + "') }}"
        for name, change in (
            ("config.json", {"model_type": EVIL}),
            ("config.json", {"architectures": [EVIL]}),
            ("config.json", {EVIL: EVIL, "hidden_size": EVIL}),
            ("tokenizer_config.json", {"tokenizer_class": EVIL, "auto_map": {"AutoTokenizer": [EVIL, EVIL]}}),
            ("adapter_config.json", {"peft_type": EVIL, "base_model_name_or_path": EVIL}),
            ("chat_template.jinja", template),
        ):
            path = self.folder / f"model-{next(self.numbers)}"
            shutil.copytree(base_run() / "model", path)
            before = json.loads((path / name).read_text()) if (path / name).exists() and name != template else {}
            (path / name).write_text(change if isinstance(change, str) else json.dumps(before | change))
            yield path


def _texts(tree: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of texts in nested values, and of the names of tables."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        if isinstance(value, str):
            yield *place, key
        yield from _texts(value, (*place, key))


def _with(tree: Any, place: tuple[Any, ...]) -> Any:
    changed = json.loads(json.dumps(tree))
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = f"{inner[place[-1]]}{EVIL}"
    return changed


def mark(command: str) -> Any:
    """A parameter; the commands that load models take seconds for each call."""
    quick = ("demo", "init", "passk", "report", "verify")
    return pytest.param(command, marks=[] if command in quick else [pytest.mark.slow])


@pytest.fixture
def loud(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some commands take the text for the name of a folder
    monkeypatch.setattr("dph.stages.demo.run_jobs", lambda *_, **__: [])
    return Loud(tmp_path)


@pytest.mark.filterwarnings("ignore:Glyph:UserWarning")  # the font of the figures has no sign for some characters
@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", [mark(name) for name in COMMANDS])
def test_no_command_tells_a_terminal_what_to_do(loud, capsys, command):
    """Every command on files that hold the text, with a preset and a settings file, and on wrong words."""
    calls = [(command, *words) for words in CALLS[command](loud)]
    kinds: dict[str, str] = {}
    for setting in every_setting(STAGES[command]()):
        if setting.name != "out":  # a folder of this name may be made
            kinds.setdefault(str(setting.kind), f"--{setting.name.replace('_', '-')}")
    wrong: list[tuple[Any, ...]] = [(command, flag, EVIL) for flag in kinds.values()]
    wrong += [(command, flag, loud.preset) for flag in ("--preset", "--config")]
    wrong += [(command, f"--{EVIL}"), (command, EVIL), (command, "--out", loud.new(), EVIL, f"-{EVIL}")]
    named = (("--preset", EVIL), ("--preset", f"{EVIL}.toml"), ("--task", EVIL), ("--plugin", f"{EVIL}.py"))
    wrong += [(command, *each) for each in (*named, ("--reward", f"{EVIL}.py:f"), ("--help", "--preset", loud.preset))]
    if command in RESUMED:
        wrong += [(command, "--resume", "--out", loud.runs.get(command, loud.folder))]
    quoted = 0
    for words in [*calls, *wrong]:
        text = printed(capsys, *words)
        assert not obeyed(text), f"{words!r} printed {obeyed(text)!r}"
        quoted += "\N{REPLACEMENT CHARACTER}" in text
    assert quoted > 5, "the commands were meant to quote the text"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", ["init", "check", "verify", "passk", "certify", "sft"])
def test_no_data_set_or_log_tells_a_terminal_what_to_do(loud, capsys, command):
    quoted = 0
    for data in loud.data_files():
        words = {
            "init": ("maths", data, "--out", loud.new()),
            "check": (data, "--no-step", "--model.path", base_run() / "model"),
            "verify": (*JUDGED[1:], "--data", data, "--predictions", data, "--bare"),
            "passk": (data, "--json"),
            "certify": (data, data),
            "sft": ("--data", data, "--model.path", base_run() / "model", "--steps", "1", "--out", loud.new()),
        }[command]
        text = printed(capsys, command, *words)
        assert not obeyed(text), f"{data.read_text()!r}: {obeyed(text)!r}"
        quoted += "\N{REPLACEMENT CHARACTER}" in text
        if command == "passk":
            text = printed(capsys, command, data, data, "--html", loud.new())
            assert not obeyed(text)
    assert quoted > 5


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore:Glyph:UserWarning")
@pytest.mark.parametrize("stage", MAKE_RUNS)
def test_no_file_of_a_run_tells_a_terminal_what_to_do(loud, capsys, stage):
    """Each text of each file of a run in turn, in the commands that read such a run."""
    quoted = 0
    for path in loud.spoiled(stage):
        reading = [(stage, "--resume", "--out", path)]
        if stage in ("eval", "verify"):
            reading += [("report", path, "--out", loud.new()), ("passk", path), ("certify", path, path)]
        if stage == "train":
            reading += [("report", finished("eval"), path, "--out", loud.new())]
            reading += [("interpolate", path, "--out", loud.new())]
        if stage == "presample":
            reading += [("certify", path, base_run(), "--certify.epsilon", "0.9")]
        for words in reading:
            text = printed(capsys, *words)
            assert not obeyed(text), f"{words!r} printed {obeyed(text)!r}"
            quoted += "owned" in text
    assert quoted > 5


@pytest.mark.filterwarnings("ignore")  # of transformers, about such models
def test_no_model_tells_a_terminal_what_to_do(loud, capsys):
    for model in loud.models():
        for words in (("eval", "--task.name", "toy", "--out", loud.new()), ("check", loud.data)):
            text = printed(capsys, *words, "--model.path", model)
            assert not obeyed(text), f"{model}: {obeyed(text)!r}"


def test_one_module_writes_to_terminals():
    """`print`, the standard streams and consoles of rich occur where everything passes `visible`, and nowhere else."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            name = ast.unparse(node.func)
            console = name.endswith("Console") and not any("Drawn(" in ast.unparse(word) for word in node.keywords)
            if name == "print" or name.endswith((".stdout.write", ".stderr.write")) or console:
                found.add(str(path.relative_to(SOURCE)))
    assert found == {"process/progress.py"}


def test_what_is_readable_stays(capsys):
    say(READABLE)
    show(f"a\n\tb {READABLE}")
    put(f"a\n\tb {READABLE}")
    out, said = capsys.readouterr()
    assert said == f"{READABLE}\na\n\tb {READABLE}\n" and out == f"a\n\tb {READABLE}\n"
    assert visible(READABLE) == READABLE == one_line(READABLE)


def test_json_escapes_what_a_terminal_would_obey():
    value = {EVIL: [EVIL, READABLE, "\ud800", "\U000e0041"], "a": 1}
    text = json_for_terminal(value)
    assert not obeyed(text) and json.loads(text) == value and "漢字" in text and "\\u009b" in text


NET = """
import sys, warnings
from dph.process.progress import show_messages, progress, say
show_messages()
evil = EVIL
print(evil)
sys.stderr.write(evil)
warnings.warn(evil)
print("\\r 50 %|##", end="", file=sys.stderr)
with progress("work " + evil, 2) as shown:
    shown.advance(1, evil)
    print(evil)
    print(evil, file=sys.stderr)
    say(evil)
    shown.advance(1, evil)
raise ValueError(evil)
"""


def test_what_libraries_print_passes_the_same_filter():
    """print, warnings, another library's bar, and the traceback of a bug."""
    done = subprocess.run([sys.executable, "-c", NET.replace("EVIL", repr(EVIL))], capture_output=True, timeout=60)
    out, said = done.stdout.decode(), done.stderr.decode()
    assert "owned" in out and said.count("owned") >= 4 and "ValueError" in said
    assert not obeyed(out) and obeyed(said) == "\r"  # of the bar


@pytest.mark.skipif(sys.platform != "linux", reason="needs a pseudo-terminal")
def test_on_a_terminal_colours_and_bars_pass_and_texts_do_not():
    from process.test_progress import ON_A_TERMINAL

    script = NET.replace("EVIL", repr(EVIL)).replace("raise ValueError(evil)", "")
    done = subprocess.run([sys.executable, "-c", ON_A_TERMINAL, script], capture_output=True, timeout=60)
    text = done.stdout.decode()
    assert "\x1b[" in text and "owned" in text and "2/2" in text
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert not set(obeyed(drawn)) - {"\r"}


def test_what_a_reward_function_prints_passes_it_too(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(f"def f(prompt, completion, **_):\n    print({EVIL!r})\n    return 1.0\n")
    code = (
        "from dph.verifiers.function import FunctionVerifier\nfrom dph.types import Problem\n"
        f"v = FunctionVerifier(function={str(file)!r} + ':f')\n"
        "print(v.verify([(Problem('1', 'a', 'b', 'function'), 'c')])[0].reward)\nv.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.stdout.decode().strip() == "1.0" and "owned" in done.stderr.decode()
    assert not obeyed(done.stderr.decode())
