"""Results of `dph passk` that can be cited: JSON with its origin, Markdown for a model card, and YAML for a model's
folder `.eval_results` on the Hugging Face hub. The schema of the JSON is docs/reference/passk.schema.json.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dph.config import PasskConfig, to_dict
from dph.errors import SettingsError
from dph.measure.changes import Comparison
from dph.measure.example import FILES
from dph.measure.samples import Samples
from dph.measure.wording import (
    comparison_as_json,
    footer,
    further_sentences,
    plain,
    scores_table,
    strata_tables,
    test_of,
    verdicts,
)
from dph.runs.files import sha256

FORMAT_VERSION = 1
"""Of the JSON. A field that is added does not change it; one that is removed, or means something else, does."""
MARKDOWN, HUB = (".md",), (".yaml", ".yml")
MARKS = {**dict.fromkeys(MARKDOWN, "<!-- made by dph passk -->"), **dict.fromkeys(HUB, "# made by dph passk")}
"""The first line of a table by the ending of its file, so that a file of somebody else is not replaced."""
_NOT_OF_THE_RESULT = ("json", "html", "table", "benchmark")
"""Settings of what is written, which change no number."""


def origin(sides: Sequence[Samples], config: PasskConfig) -> dict[str, Any]:
    """What made a result: the versions, the settings that bear on numbers, and each input with its files' SHA-256
    (null for a pipe, which cannot be read again)."""
    settings = {name: value for name, value in to_dict(config).items() if name not in _NOT_OF_THE_RESULT}
    return {
        "format": "dph passk",
        "format_version": FORMAT_VERSION,
        "dph_version": version("dph-rl"),
        "inputs": [
            {"name": side.name, "read_as": side.read_as, "files": [_file(path) for path in side.files]}
            for side in sides
        ],
        "settings": plain(settings),
    }


def _file(path: Path) -> dict[str, Any]:
    regular = path.is_file()
    return {
        "path": path.name if path in FILES else str(path),
        "bytes": path.stat().st_size if regular else None,
        "sha256": sha256(path) if regular else None,
    }


def result_as_json(comparison: Comparison, sides: Sequence[Samples], config: PasskConfig) -> dict[str, Any]:
    """The whole result with its origin."""
    return origin(sides, config) | comparison_as_json(comparison)


def check_table(config: PasskConfig, files: int) -> None:
    """Raises SettingsError for a table of an unknown kind, and for one of the hub without the name of its dataset."""
    path, benchmark = Path(config.table), config.benchmark
    if not config.table:
        raise SettingsError("--benchmark belongs to a table for the hub; add --table FILE.yaml")
    if path.suffix not in MARKS:
        kinds = "a model card takes a .md file, the folder .eval_results of a model on the hub a .yaml file"
        raise SettingsError(f"--table {path} has an unknown ending: {kinds}")
    if path.suffix in MARKDOWN and benchmark:
        raise SettingsError("--benchmark belongs to a .yaml table: a Markdown table names no dataset; leave it out")
    if path.suffix in HUB:
        dataset, _, task = benchmark.partition(":")
        if not (dataset.count("/") == 1 and all(dataset.split("/")) and task):
            raise SettingsError("a .yaml table needs --benchmark DATASET:TASK, as openai/gsm8k:gsm8k")
        if files > 2:
            raise SettingsError("a .yaml table is of one model; name its file, or BEFORE and its file, and no other")
        if config.k and 1 not in config.k:
            raise SettingsError("a .yaml table is of pass@1, which --k leaves out; add 1 to --k")


def table_as_text(comparison: Comparison, sides: Sequence[Samples], config: PasskConfig) -> str:
    """The table of the kind that the ending of `config.table` names."""
    suffix = Path(config.table).suffix
    made = origin(sides, config)
    text = _eval_results(comparison, made, config) if suffix in HUB else _markdown(comparison, made)
    return f"{MARKS[suffix]}\n{text}"


def _markdown(comparison: Comparison, made: Mapping[str, Any]) -> str:
    lines = []
    for sentence in (*verdicts(comparison), *further_sentences(comparison)):
        lines += ["", f"{sentence}."]
    for table in (scores_table(comparison), *strata_tables(comparison)):
        if table.rows:
            columns = [*map(_cell, table.columns)]
            lines += ["", f"| {' | '.join(columns)} |", "|---" + "|---:" * (len(columns) - 1) + "|"]
            lines += [f"| {' | '.join(map(_cell, row))} |" for row in table.rows]
    lines += ["", *(f"{test_of(change)}." for change in comparison.changes)]
    lines += ["", f"{footer(comparison).capitalize()}. {_made_by(made)}", ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _made_by(made: Mapping[str, Any]) -> str:
    files = [file for side in made["inputs"] for file in side["files"]]
    hashes = ", ".join(f"`{Path(file['path']).name}` {str(file['sha256'])[:12]}" for file in files[:8])
    more = f" and {len(files) - 8} more" if len(files) > 8 else ""
    return f"Made by `dph passk` {made['dph_version']} from files with these SHA-256: {hashes}{more}."


def _eval_results(comparison: Comparison, made: Mapping[str, Any], config: PasskConfig) -> str:
    """One entry, pass@1 in percent of the last file; the notes hold its interval, pass@k and the change."""
    import yaml

    scores = comparison.scores[-1]
    dataset, _, task = config.benchmark.partition(":")
    ks = sorted(int(name[5:]) for name in scores.metrics if name.startswith("pass@"))
    shown = [
        f"pass@{k} {100 * one.estimate:.1f} (95 % {100 * one.low:.1f} to {100 * one.high:.1f})"
        for k, one in ((k, scores.metrics[f"pass@{k}"]) for k in dict.fromkeys((ks[0], ks[-1])))
    ]
    low, high = scores.samples
    size = f"{scores.problems} problems, {low if low == high else f'{low} to {high}'} samples each"
    notes = [f"{', '.join(shown)}; {size}", *verdicts(comparison), _made_by(made).rstrip(".")]
    value = round(100 * scores.metrics["pass@1"].estimate, 2)
    entry = {"dataset": {"id": dataset, "task_id": task}, "value": value, "notes": "; ".join(notes)}
    return yaml.safe_dump([entry], sort_keys=False, allow_unicode=True, width=1000)
