"""The documentation against the source: links lead somewhere, every setting and every metric is explained.

`scripts/docs` checks anchors and the rest of the site. Files, functions and commands that the documents name exist in
the repository. docs/guides/troubleshooting.md quotes messages that exist, docs/concepts/security.md tests that exist.
"""

import ast
import dataclasses
import fnmatch
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import _site_pages as site_pages
import pytest

import dph
from dph.cli.main import COMMANDS, main, parse
from dph.config import STAGES, BankConfig, flatten, from_dict, to_dict
from dph.errors import UserError
from dph.measure.metrics import METRICS
from dph.runs.directory import read_metrics
from dph.stages.evaluate import evaluate
from dph.stages.train import train
from helpers import base_run, train_config

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "docs", ROOT / "experiments")
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *sorted(page for folder in FOLDERS for page in folder.rglob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files(page):
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_the_tests_that_hold_promises_exist():
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs/concepts/exactness.md").read_text(encoding="utf-8"))
    assert len(named) > 40
    there = {path: (ROOT / "tests" / path).read_text(encoding="utf-8") for path, _ in named}
    assert [f"{path}::{name}" for path, name in named if f"def {name}(" not in there[path]] == []


@pytest.mark.parametrize("stage", STAGES)
def test_the_settings_page_explains_every_setting(stage):
    rows = site_pages.settings_rows(STAGES[stage])
    leaves = {key for key in flatten(to_dict(STAGES[stage]()))}
    # a table without entries, such as task.options, is a leaf of the page and none of flatten's
    assert leaves <= {name.strip("`") for name, _, _, _ in rows}
    assert [name for name, values, _, meaning in rows if not values or not meaning] == []


SHORT = {
    *("task", "data", "databases", "suite", "gold", "rule", "policy", "workers", "timeout", "keep-distinct"),
    *("subset", "skip-missing", "reward", "task.options", "columns", "certify"),
}
COMMON = {"preset", "config", "plugin", "resume", "help", "version"}


def commands(page):
    """(stage, flags) of every call of dph in a page's shell blocks; continued lines are one call."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            for call in re.findall(r"\bdph ([a-z]+)\b(.*?)(?=; |$)", line.partition(" # ")[0]):
                yield call[0], set(re.findall(r"(?<!\S)--([a-z][a-z0-9.-]*)", call[1]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_flags_of_commands_exist(page):
    for stage, flags in commands(page):
        settings = to_dict(STAGES[stage]())
        known = {key.replace("_", "-") for key in flatten(settings)}
        known |= {re.sub(r"([^.]+)$", r"no-\1", key) for key in known} | COMMON | SHORT
        assert flags <= known, (stage, flags - known)


GUIDES = [page for page in PAGES if page.is_relative_to(ROOT / "docs") or page == ROOT / "README.md"]
RUN_BY = {
    "docs/guides/your-data.md": "stages/test_init.py::test_the_pages_commands_run",
    "docs/guides/extend.md": "project/test_examples.py::test_the_pages_commands_run",
    "dph verify --task records": "project/test_docs.py::test_what_needs_only_small_files_runs",
    "dph passk": "project/test_docs.py::test_what_needs_only_small_files_runs",
    "dph certify base.jsonl step20": "project/test_docs.py::test_what_needs_only_small_files_runs",
    "dph certify base.jsonl rl": "stages/test_certify.py::test_rare_problems_are_certified_and_the_others_named",
    "dph judge": "stages/test_judge.py::test_the_pages_commands_run",
    "dph report": "stages/test_init.py::test_the_pages_commands_run",
    "dph doctor RUN": "measure/test_trainer_logs.py::test_each_planted_failure_is_found_and_no_other",
    "dph doctor": "doctor/test_doctor.py::test_on_this_machine",
    "python -c": "project/test_docs.py::test_what_needs_only_small_files_runs",
}
"""A page, or the beginning of a command, and the test that runs it (README's `dph report` with other folders)."""
NOT_RUN = {
    "a download": (
        *(
            "qwen25_0_5b_24gb",
            "$T",
            "$P",
            "openai/gsm8k",
            "pip install",
            "pip download",
            "smollm2",
            "scripts/llm",
            "reliability.passk_tools",
            "--task spider",
        ),
        *("--task bird", "--task math500", "--gold gold.sql"),
    ),
    "a GPU": ("scripts/gpu", "--sampler.engine vllm", "docker "),
    "a cluster": ("verl.trainer.main_ppo", "dph verl"),
    "minutes, or runs that take minutes": (
        *("scripts/", "--preset countdown", "experiments.", "examples/theorem1", "-m slow", "dph audit", "dph certify"),
        *("dph interpolate", "models/half", "mine.toml", "runs/trl"),
    ),
}
"""The reasons for which a command is not run by the tests, and texts by which to know it."""


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_command_is_run_by_a_test_or_has_a_reason(page):
    text = re.sub(r"\\\n\s*", "", page.read_text(encoding="utf-8"))
    lines = [
        line.strip() for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S) for line in block.splitlines()
    ]
    texts = [*RUN_BY, *(text for texts in NOT_RUN.values() for text in texts)]
    missing = []
    for line in filter(None, lines):
        assigned = re.match(r"[A-Z]=", line) or line.startswith("cd ")
        words = re.sub(r" +", " ", line.partition(" #")[0])
        if not assigned and str(page.relative_to(ROOT)) not in RUN_BY and not any(text in words for text in texts):
            missing.append(line)
    assert missing == []


@pytest.mark.parametrize("named", sorted(set(RUN_BY.values())))
def test_the_tests_that_run_commands_exist(named):
    path, _, name = named.partition("::")
    assert defines(ROOT / "tests" / path, name)


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_settings_of_commands_are_accepted(page, monkeypatch):
    """Presets, flags and values, as `dph` reads them before it looks for files."""
    monkeypatch.chdir(ROOT)
    values: dict[str, str] = {}
    refused: list[str] = []
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
        for line in re.sub(r"\\\n", " ", block).splitlines():
            if assigned := re.match(r'([A-Z])="(.*?)"', line):
                values[assigned[1]] = assigned[2]
            for stage, rest in re.findall(r"\bdph ([a-z]+)\b(.*?)(?=; d|$)", line.partition("  #")[0]):
                words = shlex.split(re.sub(r"\$([A-Z])\b", lambda name: values[name[1]], rest), comments=True)
                if not {"mine.toml", "dph.toml"} & set(words):  # files of the reader's
                    try:
                        parse(stage, [word for word in words if word != "…"])
                    except UserError as error:
                        refused.append(f"{line}: {error}")
    assert refused == []


def test_what_needs_only_small_files_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "problems"
    folder.mkdir()
    (folder / "test.jsonl").write_text('{"id": "1", "prompt": "6 × 7?", "answer": "42", "verifier": "math"}\n')
    (tmp_path / "known.jsonl").write_text('{"id": "1", "response": "\\\\boxed{42}"}\n')
    rights = {"base": 5, "before": 5, "after": 7, "step20": 6, "step40": 8, "seed1": 6, "seed2": 7, "seed3": 8}
    for name, right in rights.items():
        verdicts = {(i, n): i % 2 == 0 or (i + n) % 9 < right for i in range(40) for n in range(24)}
        rows = [{"problem_id": i, "sample": n, "correct": correct} for (i, n), correct in verdicts.items()]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    wanted = ("dph verify --task records", "dph passk", "dph certify base.jsonl step20")
    said = []
    for name in ("guides/verifiers.md", "guides/passk.md", "concepts/certificate.md"):
        for line in (ROOT / "docs" / name).read_text(encoding="utf-8").splitlines():
            if line.startswith(wanted):
                main(shlex.split(line, comments=True)[1:])
                said.append("".join(capsys.readouterr()))
    assert len(said) == 5 and "100.0" in said[0] and "pass@8" in said[1] and "95 %" in said[-1]
    assert "33 problems lost" in said[2] and "after is the mean of 3 runs" in said[3]
    page = (ROOT / "docs/guides/verdicts.md").read_text(encoding="utf-8")
    [code] = re.findall(r"python -c '(.*)'", page)
    exec(code, {})
    assert "correct" in capsys.readouterr().out


def test_the_settings_page_shows_values_defaults_and_meanings():
    rows = {name: rest for name, *rest in site_pages.settings_rows(STAGES["train"])}
    assert rows["`loss.reduction`"][:2] == ["`pooled`, `per_set`", "`per_set`"]
    assert rows["`loss.eta`"][1:] == [
        "`0.2`",
        "η, weight of the rehearsal term.",
    ]  # declared in a class that it inherits from
    assert rows["`model.shared_prefix`"][:2] == ["true, false", "`true`"]


def names_defined():
    """Names in the metrics page, as patterns: `pass@k` stands for pass@1, pass@2 …, `eval/…` for what follows eval/."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`([^`\s]+)`", page))
    return {re.sub(r"@[kNn]$", "@[0-9]*", name).replace("…", "*") for name in names}


def undefined(names):
    """Names that the page does not define; those of the monitor are names of evaluation after eval/."""
    defined = names_defined()
    plain = {name.removeprefix("eval/") for name in names}
    return sorted(name for name in plain if not any(fnmatch.fnmatchcase(name, pattern) for pattern in defined))


def test_the_metrics_page_defines_what_runs_write(tmp_path):
    settings = {"monitor": {"every": 1, "limit": 2, "n": 2}, "rollout": {"old_logprobs": "recompute"}, "steps": 1}
    run = train(train_config(tmp_path / "train", "dph_js_def", settings | {"loss": {"kl": "k3", "kl_coef": 0.01}}))
    timings = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
    assert undefined({name for line in [*read_metrics(run), *timings] for name in line}) == []
    bank = train(train_config(tmp_path / "bank", "bank_online", {"steps": 4}))
    assert "bank/retained" in read_metrics(bank)[-1]
    assert undefined({name for line in read_metrics(bank) for name in line}) == []
    assert undefined({name for line in read_metrics(base_run()) for name in line}) == []
    assert undefined(entry.name.replace("@k", "@8") for entry in METRICS) == []
    assert undefined({"eval/new_metric", "exp/new"}) == ["exp/new", "new_metric"]  # the check can fail


def test_the_metrics_page_defines_the_scores(tmp_path):
    settings = {
        "out": str(tmp_path),
        "model": {"path": str(base_run() / "model"), "device": "cpu"},
        "task": {"name": "toy", "limit": 2},
        "rollout": {"n": 2, "max_tokens": 4, "max_prompt_tokens": 8},
    }
    config = from_dict(STAGES["eval"], settings)
    (split,) = json.loads((evaluate(config) / "scores.json").read_text())["splits"].values()
    assert undefined(split["metrics"]) == []


NAMING_PAGES = sorted(
    {*ROOT.glob("*.md"), *(page for name in ("docs", "experiments") for page in (ROOT / name).rglob("*.md"))}
)
PLACES = (ROOT, ROOT / "src" / "dph", ROOT / "tests")
SOURCE_FOLDERS = ("src", "tests", "benchmarks", "examples", "experiments", "scripts")
SOURCES = [path for folder in SOURCE_FOLDERS for path in (ROOT / folder).rglob("*.py")]
OPTIONS = ("task.options", "advantage.options", "loss.policy_options", "loss.divergence_options")
"""Settings that hold the keys of what they configure, so that their defaults are empty."""
YOURS = {"FILE.py", "mine.py"}
"""Files that a page asks its reader to write."""


ELSEWHERE = re.compile(
    r"^## (?:Comparison with other projects|What this structure costs)\n.*?(?=^## |\Z)|"
    r"^# Experiment E: what follows from it\n.*?(?=^## Results of experiment E\n)",
    re.M | re.S,
)
"""Sections that name files of other projects, names of the past, or what was deleted after a protocol."""


@pytest.fixture(params=NAMING_PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def page(request: pytest.FixtureRequest) -> str:
    return ELSEWHERE.sub("", request.param.read_text(encoding="utf-8"))


def located(name: str) -> Path | None:
    """The file that a page means: from the repository's root, from the package or the tests, or by its bare name."""
    places = [place / name for place in PLACES if (place / name).exists()]
    return next(iter(places or [path for path in SOURCES if path.name == name]), None)


def bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement binds in its module or class."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Import() | ast.ImportFrom():
            yield from (alias.asname or alias.name for alias in node.names)
        case ast.Assign() | ast.AnnAssign():
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def defines(path: Path, dotted: str) -> bool:
    """Whether a file defines `name` or `Class.name`."""
    body: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for name in dotted.split("."):
        found = [node for node in body if name in bound(node)]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


def resolves(dotted: str) -> bool:
    """Whether dph.a.b.c is a package, a module, or defined in one."""
    place, parts = ROOT / "src", dotted.split(".")
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if not parts:
        return True
    if (place / f"{parts[0]}.py").exists():
        place /= f"{parts.pop(0)}.py"
    else:
        place /= "__init__.py"
    return not parts or defines(place, ".".join(parts))


def verl_settings() -> set[str]:
    """Keys of verl's configuration block `dph`, which pages write as dph.KEY."""
    tree = ast.parse((ROOT / "src/dph/integrations/verl/settings.py").read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    names = {f"dph.{name}" for node in classes for statement in node.body for name in bound(statement)}
    return names | {f"dph.bank.{item.name}" for item in dataclasses.fields(BankConfig)}


def test_files_and_what_is_named_in_them_exist(page: str):
    named = set(re.findall(r"(?<![\w/{<…*-])([\w./-]*\w\.py)\b(?:::?([A-Za-z_]\w*(?:\.\w+)*))?", page))
    missing = []
    for name, inside in sorted(named):
        path = located(name)
        if path is None and name not in YOURS:
            missing.append(name)
        elif path and inside and not defines(path, inside):
            missing.append(f"{name}:{inside}")
    assert missing == []


def test_modules_and_functions_exist(page: str):
    public = {f"dph.{name}" for name in dph.__all__}  # the package root loads them at their first use
    named = set(re.findall(r"(?<![\w./-])(dph(?:\.\w+)+)", page)) - verl_settings() - public
    assert [name for name in sorted(named) if not resolves(name) and not name.endswith((".md", ".toml"))] == []


def test_modules_that_a_page_runs_do_something(page: str):
    for name in re.findall(r"\s-m ((?:dph|benchmarks|experiments)(?:\.\w+)*)", page):
        place = (ROOT / "src" if name.startswith("dph") else ROOT).joinpath(*name.split("."))
        code = (place / "__main__.py" if place.is_dir() else place.with_suffix(".py")).read_text(encoding="utf-8")
        assert '__name__ == "__main__"' in code, name


def test_settings_exist(page: str):
    known = {key.replace("-", "_") for stage in STAGES.values() for key in flatten(to_dict(stage()))}
    groups = "|".join({key.partition(".")[0] for key in known if "." in key})
    named = set(re.findall(rf"(?<![\w.`/])(?:--|`)((?:{groups})\.[\w-]+)(?![\w./(])", page))
    named = {name for name in named if not name.endswith((".py", ".parquet", ".jsonl"))}
    missing = [name for name in sorted(named) if name.replace("-", "_").replace(".no_", ".") not in {*known, *OPTIONS}]
    assert missing == []


def test_scripts_benchmarks_examples_and_tests_exist(page: str):
    named = set(re.findall(r"(?<![\w/-])((?:scripts|benchmarks|examples|experiments|tests|src)/[\w./-]*\w)", page))
    assert [name for name in sorted(named) if located(name) is None] == []


def test_the_checks_find_what_is_missing():
    assert located("measure/passk.py") and located("passk.py") and not located("measure/nothing.py")
    assert resolves("dph.evaluation") and resolves("dph.measure.passk.pass_at_k")
    assert not resolves("dph.measure.passk.nothing") and not resolves("dph.nothing")
    assert defines(ROOT / "src/dph/types.py", "Problem.verifier")


SOURCE = Path(dph.__file__).parent


def strings():
    """Every text in the source, with … where a value is filled in."""
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def quoted_messages():
    page = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text(encoding="utf-8")
    tables = re.findall(r"\| message \|.*?\n\|---\|---\|\n((?:\|.*\n)+)", page)
    cells = [line.split("|")[1].strip() for table in tables for line in table.splitlines()]
    return [message for cell in cells for message in cell.split("; ")]


def test_the_messages_that_the_page_quotes_are_said():
    known = strings()
    messages = quoted_messages()
    assert len(messages) >= 14
    for message in messages:
        parts = [part.strip() for part in re.split(r"…|\(weight_hash", message) if part.strip(" )")]
        assert any(all(part in text for part in parts) for text in known), message


def test_the_flags_of_the_page_exist():
    page = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text(encoding="utf-8")
    flags = set(re.findall(r"`--([a-z.-]+)", page))
    known = {key.replace("_", "-") for stage in STAGES.values() for key in flatten(to_dict(stage()))}
    assert (
        flags - known <= {"preset", "resume", "no-smoke", "prompts", "task.options", "databases"} and "smoke" in known
    )
    assert "doctor" in COMMANDS and len(flags) > 12


def test_the_tests_that_the_promises_name_exist():
    page = (ROOT / "docs" / "concepts" / "security.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`(test_\w+)`", page)) | {"test_bad_input_data", "test_bad_input_runs"}
    assert len(names) >= 10
    assert [name for name in sorted(names) if not list((ROOT / "tests").rglob(f"{name}.py"))] == []
