"""The atlas: the page has the tables of the committed results, and results are what their counts give."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dph.errors import UserError
from experiments.atlas.__main__ import main
from experiments.atlas.page import FOLDER, PAGE, by_class, by_k, figure, replaced, rows
from experiments.atlas.sources import FROM_REMAX, OWN, remax, result

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_the_page_has_the_tables_of_the_results() -> None:
    assert main(["--check"]) == 0


def test_a_result_that_changed_changes_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "atlas"
    shutil.copytree(FOLDER, folder)
    result = json.loads((folder / "deepscaler.json").read_text())
    result["changes"][0]["differences"]["pass@8"]["estimate"] += 0.01
    (folder / "deepscaler.json").write_text(json.dumps(result))
    text = PAGE.read_text()
    assert replaced(text, rows(folder)) != text == replaced(text, rows())


def test_a_row_without_a_result_and_a_result_without_a_row_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "atlas"
    shutil.copytree(FOLDER, folder)
    (folder / "sql-grpo.json").rename(folder / "mine.json")
    with pytest.raises(UserError, match=r"rows\.toml and the JSON files differ in mine, sql-grpo$"):
        rows(folder)


def test_every_row_has_a_source_and_names_no_folder() -> None:
    every = rows()
    assert {row.name for row in every} == {*OWN, *FROM_REMAX}
    paths = [file["path"] for row in every for side in row.result["inputs"] for file in side["files"]]
    assert paths and all("/" not in path for path in paths)


@pytest.mark.parametrize("name", ["deepscaler", "sql-grpo", "countdown-k3"])
def test_a_result_is_what_its_counts_give(name: str) -> None:
    made = result(OWN[name]())
    committed = json.loads((FOLDER / f"{name}.json").read_text())
    for key in ("changes", "scores", "inputs", "settings"):
        assert made[key] == committed[key]


def test_the_tables_say_the_public_pair_as_its_authors_do() -> None:
    """Higher for k = 1–10, lower from 61 on, and a first loss in [11, 61] with an asymptotic band; ours is wider."""
    header, first, *_ = by_k(rows())
    row = dict(zip(header, first, strict=True))
    assert row["first k with a loss"] == "11 to 65"
    assert (row["pass@1"], row["pass@128"]) == ("+7.6 (+6.7 to +8.4)", "**-2.0 (-3.2 to -0.7)**")
    assert [line[0] for line in by_class(rows())][:2] == ["model", "R1-Distill-Qwen-1.5B"]


def test_the_figure_has_a_curve_for_every_row() -> None:
    every = rows()
    left, right = figure(every).axes
    curves = [line for line in left.lines if len(line.get_xdata()) > 2]
    assert len(curves) == len(every) and {text.get_text() for text in left.figure.legends[0].get_texts()} == {
        row.family for row in every
    }
    assert [label.get_text() for label in right.get_xticklabels()] == ["0–25 %", "25–50 %", "50–80 %", "80–100 %"]


def _keys(path: Path, runs: int) -> Path:
    """A file of keys with two tasks of two problems, two draws of two responses, before and after."""
    lines: list[dict[str, Any]] = [{"record_kind": "manifest"}]
    for domain in ("a", "b"):
        for seed in range(runs):
            draws = {"0": [["x", None], [None, None]], "5": [["x", "x"], ["y", None]]}
            checkpoints = {
                step: {"prompts": {str(i): {"prompt_index": i, "draws": drawn} for i in range(2)}}
                for step, drawn in draws.items()
            }
            about = {"level": "level1", "scale": "m", "method": "grpo", "domain": domain, "seed": 9 - seed}
            lines.append({"record_kind": "cell", "before_after_available": True, "checkpoints": checkpoints, **about})
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return path


def test_keys_become_counts(tmp_path: Path) -> None:
    before, after = remax(_keys(tmp_path / "three.gz", 3), "level1", "m", "grpo")
    assert before == {f"{domain}/{i}": (1, 4) for domain in "ab" for i in range(2)}
    assert after == [{f"{domain}/{i}": (3, 4) for domain in "ab" for i in range(2)}] * 3


def test_an_arm_with_too_few_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a domain has 2 complete runs, fewer than 3"):
        remax(_keys(tmp_path / "two.gz", 2), "level1", "m", "grpo")
