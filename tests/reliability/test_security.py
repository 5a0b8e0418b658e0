"""What docs/concepts/security.md promises: no network, no unpickling, no foreign code, nothing displayed is executed.

Attacks on the sandbox are tested with the verifiers, pickled models in test_loading.
"""

import ast
import json
import os
import sqlite3
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dph
from dph.config import ModelConfig
from dph.errors import UserError, one_line, reason_of
from dph.process.progress import say
from dph.report.write import report
from experiments import smollm2

SOURCE = Path(dph.__file__).parent
TESTS = Path(__file__).parents[1]

# A whole run, watched by Python's audit events -----------------------------------------------------------------------

_NETWORK = ("connect", "connect_ex", "getaddrinfo", "gethostbyname", "gethostbyaddr", "sendto", "sendmsg", "bind")
WATCHED = """
import json, os, sys
seen = {"network": [], "unpickled": [], "started": [], "written": []}

def watch(event, args):
    if event in NETWORK:
        seen["network"].append(f"{event} {args[1:]}")
    elif event == "pickle.find_class":
        seen["unpickled"].append(f"{args[0]}.{args[1]}")
    elif event == "subprocess.Popen":
        seen["started"].append([str(word) for word in args[1]])
    elif event in ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile"):
        seen["started"].append([event])
    elif event == "open" and isinstance(args[0], (str, bytes)) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        seen["written"].append(os.path.realpath(os.fsdecode(args[0])))

sys.addaudithook(watch)
from dph.cli.main import main
from helpers import base_run, folder, presampled

toy = ["--task.name", "toy", "--rollout.max-tokens", "4", "--rollout.n", "2", "--model.path", str(base_run() / "model")]
rehearse = ["--rehearsal.path", str(presampled()), "--rehearsal.rows", "2"]
main(["train", "--preset", "dph_js", *toy, *rehearse, "--rollout.prompts", "2", "--steps", "2", "--out", "train"])
main(["eval", *toy, "--task.name", "records", "--task.options", "path", "problems.jsonl", "--out", "eval"])
main(["report", "--runs", "eval", "train", "--out", "report"])
json.dump(seen, open("seen.json", "w"))
"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """What a process did that trained, evaluated with the workers of SQL and mathematics, and wrote a report."""
    here = tmp_path_factory.mktemp("watched")
    connection = sqlite3.connect(here / "d.sqlite")
    connection.executescript("CREATE TABLE t (a); INSERT INTO t VALUES (1);")
    connection.close()
    rows = [
        {"prompt": "easy 1", "answer": "SELECT a FROM t", "verifier": "sql", "db": "d.sqlite"},
        {"prompt": "easy 2", "answer": "yes", "verifier": "exact"},
    ]
    (here / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    script = WATCHED.replace("NETWORK", repr(tuple(f"socket.{name}" for name in _NETWORK)))
    # The hub is not forbidden here: nothing must be asked of it without that.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"TMPDIR": str(here), "MPLCONFIGDIR": str(here), "PYTHONPATH": f"{SOURCE.parent}:{TESTS}"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=here, env=environment, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return here, json.loads((here / "seen.json").read_text())


@pytest.mark.slow
def test_no_connection_is_opened(watched):
    assert watched[1]["network"] == []


@pytest.mark.slow
def test_nothing_is_unpickled(watched):
    assert watched[1]["unpickled"] == []


@pytest.mark.slow
def test_only_workers_are_started(watched):
    started = watched[1]["started"]
    workers = [command for command in started if command[0] != "fc-list"]  # matplotlib asks it for fonts
    for command in workers:
        assert command[:4] == [sys.executable, "-I", "-S", "-c"] and "dph.verifiers" in command[-1]
    assert workers


@pytest.mark.slow
def test_files_are_written_in_the_directories_that_were_named_only(watched):
    here, seen = watched
    elsewhere = [path for path in seen["written"] if not Path(path).is_relative_to(here.resolve())]
    assert [path for path in elsewhere if path != os.devnull] == []
    assert any("scores.json" in path for path in seen["written"])


def test_the_watch_sees_what_it_is_to_see(tmp_path):
    script = WATCHED.split("from dph.cli.main")[0].replace(
        "NETWORK", repr(tuple(f"socket.{name}" for name in _NETWORK))
    )
    script += (
        "import pickle, socket, subprocess, collections\n"
        "try: socket.create_connection(('127.0.0.1', 9), timeout=0.1)\n"
        "except OSError: pass\n"
        "pickle.loads(pickle.dumps(collections.OrderedDict()))\n"
        "subprocess.run([sys.executable, '-c', ''])\n"
        "open('file', 'w').close()\n"
        "print(json.dumps(seen))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    seen = json.loads(done.stdout)
    assert any("socket.connect" in text for text in seen["network"])
    assert seen["unpickled"] == ["collections.OrderedDict"]
    assert seen["started"] == [[sys.executable, "-c", ""]]
    assert str(tmp_path.resolve() / "file") in seen["written"]


# What the source does not say -----------------------------------------------------------------------------------------

_NAMES = {"eval", "exec", "__import__"}
_MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "requests", "urllib"}
_CALLS = {"torch.load", "torch.save", "torch.hub", "os.system", "os.popen", "sympy.sympify", "sympy.parse_expr"}


def forbidden(source):
    """Calls and imports in a Python text that can run what a file or a model says."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in _MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _MODULES:
            found.append(node.module)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            flags = {word.arg for word in node.keywords if ast.unparse(word.value) != "False"}
            shell = flags & {"shell", "allow_pickle"}
            if name in _NAMES or name in _CALLS or shell:
                found.append(name)
    return found


@pytest.mark.parametrize(
    "source",
    [
        *("eval('1')", "exec(x)", "import pickle", "from shelve import open", "torch.load(x)", "os.system('ls')"),
        *("subprocess.run('ls', shell=True)", "np.load(x, allow_pickle=True)", "sympy.sympify(x)"),
    ],
)
def test_the_search_finds_what_it_is_to_find(source):
    assert forbidden(source)


def test_no_module_evaluates_text_unpickles_or_calls_a_shell():
    found = {str(path.relative_to(SOURCE)): forbidden(path.read_text()) for path in SOURCE.rglob("*.py")}
    assert {path: calls for path, calls in found.items() if calls} == {}


def test_code_of_models_and_plugins_runs_at_two_places_only():
    """Importing what a user names, and the flag trust_remote_code, which is off unless it is set."""
    sources = {str(path.relative_to(SOURCE)): path.read_text() for path in SOURCE.rglob("*.py")}
    importing = {name for name, text in sources.items() if "exec_module" in text}
    assert importing == {"process/user_code.py"}
    calls = [node for text in sources.values() for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    words = [word for call in calls for word in call.keywords if word.arg == "trust_remote_code"]
    values = {ast.unparse(word.value) for word in words}
    assert values and all(
        value == "False" or value.endswith("trust_remote_code") for value in values
    )  # as it was given
    assert ModelConfig().trust_remote_code is False


def test_every_model_is_loaded_by_a_call_that_says_whether_its_code_may_run():
    """Without the word, transformers asks on the terminal."""
    found = []
    for path in [*SOURCE.rglob("*.py"), Path(smollm2.__file__)]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
                (".from_pretrained", "AutoModelForCausalLM.from_config")
            ):
                words = {word.arg for word in node.keywords}
                found.append((path.name, bool(words & {"trust_remote_code", None})))  # None: **words
    assert len(found) >= 6 and all(said for _, said in found), found


# What a reader sees ---------------------------------------------------------------------------------------------------

ATTACKS = [
    "<script>alert(1)</script>",
    "</pre></div><img src=x onerror=alert(2)>",
    "'\"><svg/onload=alert(3)>",
    "</script><script>alert(4)//",
    "<!--",
    "]]><style>*{display:none}</style>",
    "{{7*7}} &lt;b&gt; javascript:alert(5)",
    "\N{RIGHT-TO-LEFT OVERRIDE}\x1b[2J\x00",
]


def evaluation(path, hostile):
    """An evaluation whose every text is the hostile one, or where there is none a harmless one of its own."""
    path.mkdir(parents=True)

    def text(plain):
        return hostile if hostile is not None else plain

    value = {"mean": 0.5, "low": 0.4, "high": 0.6}
    split = {
        "problems": 3,
        "samples": 2,
        "metrics": {"greedy": value, "pass@1": value},
        "pass_curve": {"1": value, "2": value},
        "style_shares": {text("style"): 1.0},
    }
    (path / "scores.json").write_text(json.dumps({"label": text("label"), "model": "m", "splits": {"test": split}}))
    facts = {"split": "test", "samples": 2, "greedy": False, "styles": 1, "styles_correct": 0, "content": "c"}
    rows = [facts | {"id": f"{i}{text('')}", "kind": text("kind"), "correct": i % 2} for i in range(3)]
    shown = {"prompt": text("prompt"), "answer": text("answer")}
    pq.write_table(pa.Table.from_pylist([row | shown for row in rows]), path / "problems.parquet")
    judged = {"split": "test", "outcome": "wrong", "reward": 0.0, "style": text("style"), "tokens": 3}
    samples = [
        judged | {"id": row["id"], "sample": sample, "text": text("response"), "finish_reason": "stop"}
        for row in rows
        for sample in (-1, 0, 1)
    ]
    pq.write_table(pa.Table.from_pylist(samples), path / "completions.parquet")
    return path


class Structure(HTMLParser):
    """Tags of a page with the names of their attributes, and the values of those that can act."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.acting = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(sorted(name for name, _ in attrs))))
        self.acting += [(name, value) for name, value in attrs if name.startswith("on") or name in ("href", "src")]

    def handle_comment(self, data):
        self.tags.append(("comment", ()))


def page_of(folder, hostile):
    """The page of a report on an evaluation."""
    title = "t" if hostile is None else hostile
    page = report([evaluation(folder / "run", hostile)], folder / "report", base=None, title=title)
    return page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def harmless(tmp_path_factory):
    """The structure of a page without any hostile text."""
    return Structure(page_of(tmp_path_factory.mktemp("harmless"), None))


@pytest.mark.filterwarnings("ignore:Glyph:UserWarning")  # the font of the figures has no sign for the attack's
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_page_has_the_same_structure_whatever_a_model_wrote(tmp_path, harmless, attack):
    page = page_of(tmp_path, attack)
    found = Structure(page)
    assert len(found.tags) > 20 and found.tags == harmless.tags
    acting = [(n, v) for n, v in found.acting if not str(v).startswith("data:image/png;base64,")]
    assert acting == [(n, v) for n, v in harmless.acting if not str(v).startswith("data:image/png;base64,")]
    assert "Content-Security-Policy" in page and attack not in page
    assert not {"\x00", "\x1b", "\N{RIGHT-TO-LEFT OVERRIDE}"} & set(page)


def test_the_pages_script_shows_text_and_never_markup():
    script = (SOURCE / "report" / "assets" / "report.js").read_text(encoding="utf-8")
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "fetch("):
        assert word not in script
    assert "textContent" in script


@pytest.mark.parametrize("text", ["\x1b]0;owned\x07", "a\rb", "\x9b2J", "\N{RIGHT-TO-LEFT OVERRIDE}abc", "a\x08\x08b"])
def test_a_terminal_is_not_told_what_to_do(text, capsys):
    assert not {c for c in one_line(text) if not c.isprintable()}
    say(f"the id {text} is twice")
    assert not {c for c in capsys.readouterr().err.rstrip("\n") if not c.isprintable()}


def test_messages_stay_on_one_line_and_short():
    assert one_line("a\n  b\n\nc  d") == "a b c  d"
    assert len(one_line("x" * 10_000)) < 4100
    assert reason_of(ValueError("no\n  card")) == "no card" and reason_of(KeyError()) == "KeyError"
    assert len(reason_of(ValueError("x" * 10_000))) < 210
    assert one_line("Größe ≥ 3 \N{GRINNING FACE}") == "Größe ≥ 3 \N{GRINNING FACE}"
    assert str(UserError("x")) == "x"
