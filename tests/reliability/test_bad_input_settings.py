"""The table of bad input, part 1: settings files, values, plug-ins and words of the command line.

Each case ends with exit status 2 and one sentence that says what is wrong; nothing is written.
"""

import gzip

import pytest

from complaints import complaint, run
from helpers import base_run

FILES = {
    "missing": (None, "cannot read the settings file"),
    "not TOML": (b"steps = [", "is not a valid TOML file"),
    "not text": (b"method = '\xff'", "is not a valid TOML file: line 1 is not UTF-8 text; save"),
    "UTF-16": ("steps = 1".encode("utf-16"), "is not a valid TOML file: its content is UTF-16 text; save it as UTF-8"),
    "compressed": (gzip.compress(b"steps = 1"), "is not a valid TOML file: its content is compressed with gzip"),
    "binary": (b"\x00\x01", "is not a valid TOML file"),
    "nested without end": (b"steps = " + b"[" * 5000, "is not a valid TOML file"),
    "keys nested without end": (
        b"task.options." + b"a." * 2000 + b"a = 1",
        "a key has more than 100 parts",
    ),
    "a key twice": (b"steps = 1\nsteps = 2", "is not a valid TOML file: Cannot overwrite a value"),
    "unknown key": (b"stepz = 1", "has an unknown key 'stepz'; perhaps you meant steps; known here are: "),
    "unknown key of the stage": (
        b"[train]\nstepz = 1",
        "have an unknown key 'stepz'; perhaps you meant steps; known here are: ",
    ),
    "unknown key in a table": (b"[optim]\nrate = 1", "under 'optim' has an unknown key 'rate'"),
    "list for a number": (b"steps = [1]", "'steps' must be of type int, not [1]"),
    "text for a number": (b"steps = 'x'", "'steps' must be of type int, not 'x'"),
    "truth for a number": (b"steps = true", "'steps' must be of type int, not True"),
    "a date for text": (b"method = 2020-01-01", "'method' must be of type str"),
    "a number for a table": (b"model = 3", "'model' must be a table, not 3"),
    "a stage as a number": (b"train = 3", "'train' must be a table, not 3"),
    "no method's table": (b"[for]\ngrpo = 3", "'for.grpo' must be a table, not 3"),
    "none of the choices": (
        b"prompt_set = 'some'",
        "'prompt_set' must be one of 'all', 'explore', 'other', not 'some'",
    ),
    "a rate that is not a number": (b"[optim]\nlr = nan", "optim.lr is nan; it must be 0 or more, and finite"),
    "an infinite rate": (b"[optim]\nlr = inf", "optim.lr is inf; it must be 0 or more, and finite"),
}


YAML_FILES = {
    "missing": (None, "cannot read the settings file"),
    "not YAML": (b"steps: [", "is not a valid YAML file"),
    "not text": (b"method: '\xff'", "is not a valid YAML file: line 1 is not UTF-8 text; save"),
    "UTF-16": ("steps: 1".encode("utf-16"), "is not a valid YAML file: its content is UTF-16 text; save it as UTF-8"),
    "nested without end": (b"steps: " + b"[" * 5000, "is not a valid YAML file"),
    "a control character": (b"steps: \x07", "is not a valid YAML file"),
    "a tabulator": (b"optim:\n\tlr: 1", "is not a valid YAML file"),
    "unknown key": (b"stepz: 1", "has an unknown key 'stepz'; perhaps you meant steps; known here are: "),
    "an infinite rate": (b"optim:\n  lr: .inf", "optim.lr is inf; it must be 0 or more, and finite"),
}
CASES = [*(("a.toml", name) for name in FILES), *(("a.yaml", name) for name in YAML_FILES)]


@pytest.mark.parametrize(("called", "name"), CASES)
def test_settings_files(tmp_path, capsys, called, name):
    content, expected = (FILES if called == "a.toml" else YAML_FILES)[name]
    file = tmp_path / called
    if content is not None:
        file.write_bytes(content)
    message = complaint(capsys, "train", "--config", file, "--out", tmp_path / "run")
    assert expected in message
    assert not (tmp_path / "run").exists()


def test_a_byte_order_mark_is_no_mistake(tmp_path, capsys):
    (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbfsteps = 1")
    assert "no run directory was named" in complaint(capsys, "train", "--config", tmp_path / "a.toml")


VALUES = {
    "rollout.n 1": "rollout.n is 1; advantages are relative to a group of at least 2",
    "rollout.n 0": "rollout.n is 0; it must be at least 1",
    "rollout.temperature 0": "rollout.temperature must be above 0",
    "rollout.temperature nan": "rollout.temperature is nan; it must be 0 or more, and finite",
    "rollout.temperature -1": "rollout.temperature is -1.0",
    "rollout.max-tokens 0": "rollout.max_tokens is 0; it must be at least 1",
    "rollout.top-p 1.5": "rollout.top_p is 1.5; it must be above 0 and at most 1",
    "sampler.rows -1": "sampler.rows is -1",
    "verifier.workers 0": "verifier.workers is 0",
    "verifier.timeout 0": "verifier.timeout is 0.0; it must be above 0, and finite",
    "optim.beta1 1": "optim.beta1 is 1.0; it must be 0 or more and below 1",
    "optim.minibatches 999": "cannot be split into 999 mini-batches",
    "overlong.buffer 9999": "overlong.buffer 9999 is longer than a response may be (rollout.max_tokens 1024)",
    "loss.eta nan": "loss.eta is nan; it must be 0 or more, and finite",
    "loss.clip-low 2": "loss.clip_low is 2.0; it must",
    "loss.clip-high inf": "loss.clip_high is inf",
    "loss.dual-clip 0.5": "loss.dual_clip must be greater than 1, or 0 for off, but is 0.5",
    "loss.kl-coef 0.1": "loss.kl_coef is 0.1 but loss.kl is 'none'",
    "loss.entropy-coef nan": "loss.entropy_coef is nan; it must be finite",
    "loss.js-scale 2": "loss.js_scale applies to loss.estimator 'definition' only",
    "loss.js-ratio 0.3": "loss.js_ratio applies to loss.estimator 'definition' only",
    "loss.aggregation dr_grpo --loss.dr-grpo-length 0": "loss.dr_grpo_length is 0; it must be at least 1",
    "loss.divergence nope": "no divergence is named 'nope'; known are: ",
    "loss.divergence alpha --loss.alpha 2": "alpha",
    "loss.alpha 0.2": "loss.alpha is the order of",
    "loss.policy gspo --loss.dual-clip 3": "'gspo' has no dual clip",
    "loss.policy kl_cov --loss.dual-clip 3": "'kl_cov' has no dual clip",
    "max-unjudged 2": "max_unjudged is 2.0; it must be between 0 and 1",
    "steps -1": "steps is -1; it must be 0 or more, and finite",
    "task.limit -1": "task.limit is -1",
    "prompt-set explore": "needs a presampled partition",
}


@pytest.mark.parametrize("text", VALUES)
def test_values(tmp_path, capsys, text):
    words = ["train", "--model.path", "m", "--out", tmp_path / "run", *f"--{text}".split()]
    assert VALUES[text] in complaint(capsys, *words)
    assert not (tmp_path / "run").exists()


GREEDY = {
    "eval": "at temperature 0 all 32 responses to a prompt are the same, so that pass@32 would be pass@1; set ro",
    "audit": "at temperature 0 all 32 responses to a prompt are the same",
    "presample": "rollout.temperature must be above 0",
    "verl": "rollout.temperature must be above 0",
}


@pytest.mark.parametrize("command", GREEDY)
def test_several_greedy_responses_to_a_prompt_are_refused_everywhere(tmp_path, capsys, command):
    model = base_run() / "model"
    words = [command, *([model, model] if command == "audit" else ["--model.path", model]), "--out", tmp_path / "run"]
    assert GREEDY[command] in complaint(capsys, *words, "--rollout.temperature", "0")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("setting", "name"), [("validation.temperature", "validation.n"), ("validation.temperature", "monitor.n")]
)
def test_several_greedy_responses_of_verls_validation_are_refused(tmp_path, capsys, setting, name):
    words = ["verl", "--model.path", base_run() / "model", "--out", tmp_path / "run", f"--{setting}", "0"]
    words += ["--monitor.every", "1", *(["--validation.n", "1"] if name == "monitor.n" else [])]
    message = complaint(capsys, *words)
    assert "at temperature 0 all " in message and f"; set {name} to 1, or the temperature above 0" in message


@pytest.mark.parametrize(
    "words", [["--steps", "many"], ["--seed"], ["extra"], ["--task.options", "path"], ["--tracker", "paper"]]
)
def test_words_that_are_no_settings(tmp_path, capsys, words):
    status, said = run(capsys, "train", "--out", tmp_path / "run", *words)
    assert status == 2 and "Traceback" not in said and "help" in said


PLUGINS = {
    "a file that is missing": ("nothing.py", None, "cannot import the plug-in 'nothing.py'"),
    "a module that is missing": (
        "no.such.module",
        None,
        "cannot import the plug-in 'no.such.module': ModuleNotFound",
    ),
    "no name": ("", None, "cannot import the plug-in ''"),
    "a relative name": ("..", None, "cannot import the plug-in '..'"),
    "no Python": ("a.py", "def (:", "cannot import the plug-in 'a.py': SyntaxError: invalid syntax (a.py, line 1)"),
    "an error of its own": ("a.py", "import os\n1 / 0", "'a.py': ZeroDivisionError in line 2: division by zero"),
    "an import of its own": ("a.py", "import no_such_module", "No module named 'no_such_module'"),
    "an unknown name": ("a.py", "from dph.tasks import nonsense", "cannot import name 'nonsense'"),
}


@pytest.mark.parametrize("name", PLUGINS)
def test_plugins(tmp_path, monkeypatch, capsys, name):
    plugin, text, expected = PLUGINS[name]
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / plugin).write_text(text)
    assert expected in complaint(capsys, "train", "--loss.eta", "0", "--plugin", plugin, "--out", "run")
    assert not (tmp_path / "run").exists()


WORDS = {
    "an unknown command": (["trian"], "no command is named 'trian'; perhaps you meant train; known are: "),
    "an unknown preset": (
        ["train", "--preset", "../grpo"],
        "no preset is named '../grpo'; perhaps you meant grpo; known are: ",
    ),
    "a preset of no stage": (["demo", "--methods", "countdown"], "no method preset is named 'countdown'; known are: "),
    "no jobs": (["demo", "--jobs", "0"], "jobs is 0; it must be at least 1"),
    "a file as directory of a demo": (["demo", "--smoke", "--out", "file"], "cannot write file/logs: Not a directory"),
    "a file as directory of a run": (
        ["train", "--model.path", "m", "--out", "file"],
        "cannot write to the run directory",
    ),
    "a name that is too long": (["train", "--model.path", "m", "--out", "x" * 300], "File name too long"),
    "no runs to report": (["report", "--out", "x"], "dph report needs runs and a directory to write"),
    "no directory": (["eval"], "no run directory was named; add --out DIRECTORY"),
}


@pytest.mark.parametrize("name", WORDS)
def test_words(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    words, expected = WORDS[name]
    assert expected in complaint(capsys, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
