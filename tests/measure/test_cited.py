"""What can be cited of `dph passk`: JSON by its schema, with versions, settings and hashes; tables for a model card and
for the hub; the example in the package against the published numbers."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from complaints import complaint, run
from dph.cli.main import main
from dph.measure.example import FILES

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/reference/passk.schema.json").read_text(encoding="utf-8"))
KINDS = {"string": str, "object": dict, "array": list, "boolean": bool, "null": type(None)}


def wrong(value: Any, schema: dict[str, Any], place: str = "") -> list[str]:
    """Where a value departs from a schema, as far as the schema uses JSON Schema; keys without a schema count too."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]] | {k: v for k, v in schema.items() if k != "$ref"}
    if "const" in schema:
        return [] if value == schema["const"] else [f"{place}: {value!r}"]
    kinds = [kind for kind in (schema.get("type", []),) for kind in ([kind] if isinstance(kind, str) else kind)]
    if not any(_is(value, kind) for kind in kinds):
        return [f"{place} is {value!r:.60}, not {kinds}"]
    if isinstance(value, list):
        few = len(value) < schema.get("minItems", 0) or len(value) > schema.get("maxItems", len(value))
        found = [f"{place} has {len(value)} items"] if few else []
        return found + [text for i, item in enumerate(value) for text in wrong(item, schema["items"], f"{place}[{i}]")]
    if not isinstance(value, dict) or not {"properties", "additionalProperties"} & schema.keys():
        return []
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    found = [f"{place} lacks {name}" for name in schema.get("required", ()) if name not in value]
    for name, item in value.items():
        inner = known.get(name, others)
        found += wrong(item, inner, f"{place}.{name}") if inner else [f"{place} has the unknown key {name}"]
    return found


def _is(value: Any, kind: str) -> bool:
    if kind in ("number", "integer"):
        return type(value) is int or (kind == "number" and type(value) is float)
    return isinstance(value, KINDS[kind])


def passk(*words: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "dph", "passk", *map(str, words), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout)


def samples(folder: Path, name: str, rows: list[dict[str, Any]]) -> Path:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / name


def rows(answers: str) -> list[dict[str, Any]]:
    """Four problems with as many answers each; a capital letter is right."""
    return [{"id": id, "correct": a.isupper(), "answer": a} for id in "pqrs" for a in answers]


def test_the_schema_refuses_what_is_not_of_it() -> None:
    good = passk("--example")
    assert wrong(good, SCHEMA) == []
    for key in ("dph_version", "changes", "inputs"):
        assert wrong({name: value for name, value in good.items() if name != key}, SCHEMA)
    assert wrong(good | {"format_version": 2}, SCHEMA) and wrong(good | {"new": 1}, SCHEMA)
    good["changes"][0]["band"]["low"][0] = "0.1"
    assert wrong(good, SCHEMA)


def test_json_follows_its_schema(tmp_path: Path) -> None:
    one, two, three = (samples(tmp_path, f"{name}.jsonl", rows(name)) for name in ("Aab", "aBb", "ABC"))
    some = samples(tmp_path, "some.jsonl", rows("ABCDABCD")[:-3])
    for words in ([one], [one, two, three], [one, some, "--partial"], [one, two, "--k", 1, "--threshold", "inf"]):
        assert wrong(passk(*words), SCHEMA) == []


def test_json_names_versions_settings_and_the_hash_of_every_file(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    parts = [samples(folder, f"run-{i}.jsonl", rows("Ab"[i])) for i in range(2)]
    other = samples(tmp_path, "after.jsonl", rows("Ab"))
    found = passk(folder, other, "--k", 1, "--answer", "none", "--html", tmp_path / "page.html")
    assert (found["format"], found["format_version"], found["dph_version"]) == ("dph passk", 1, "0.1.0")
    hashes = [[(file["path"], file["sha256"]) for file in side["files"]] for side in found["inputs"]]
    expected = [(str(file), hashlib.sha256(file.read_bytes()).hexdigest()) for file in (*parts, other)]
    assert hashes == [expected[:2], expected[2:]]
    assert found["settings"]["k"] == [1] and found["settings"]["answer"] == "none"
    assert "html" not in found["settings"], "what is written changes no number"


def test_the_example_has_the_published_numbers() -> None:
    found = passk("--example")
    [change] = found["changes"]
    was, now = (scores["metrics"] for scores in found["scores"])
    # arXiv 2609.22547: 1,060 problems; a gain for k = 1 … 10 and a loss for k = 61 … 128, the first in [11, 61]. Their
    # band is asymptotic; ours bounds the error and adds two imaginary problems, so that it shows the loss a bit later.
    assert change["problems"] == 1060 and change["band"]["above"] == [[1, 10]]
    [below], first = change["band"]["below"], change["band"]["first_loss"]
    assert below == [65, 128] and first == [11, 65]
    assert was["pass@1"]["estimate"] == pytest.approx(0.6041052476415094, abs=1e-12)  # their expected.json
    assert was["pass@2"]["estimate"] == pytest.approx(0.685305628807012, abs=1e-12)
    assert now["pass@1"]["estimate"] == pytest.approx(0.6801, abs=5e-5)
    assert (len(change["lost"]), len(change["gained"])) == (33, 12)
    assert str(FILES[0].parent) not in json.dumps(found), "a result that is cited does not say where it was made"
    assert "MIT License" in FILES[0].with_name("LICENSE").read_text(encoding="utf-8")


def test_a_model_card_gets_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = tmp_path / "new" / "card.md"
    assert run(capsys, "passk", "--example", "--table", card)[0] == 0
    text = card.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert "| pass@1 | 60.4 (58.0–62.8) | 68.0 (65.6–70.4) | +7.6 (+6.7 to +8.4) | +6.5 to +8.7 |" in lines
    for one in [part for part in text.split("\n\n") if part.startswith("|")]:
        assert len({line.count("|") for line in one.splitlines()}) == 1, "every row has as many cells"
    digest = hashlib.sha256(FILES[0].read_bytes()).hexdigest()[:12]
    assert f"`base.csv` {digest}" in text and "`dph passk` 0.1.0" in text
    assert run(capsys, "passk", "--example", "--table", card)[0] == 0, "its own table is replaced"
    card.write_text("# Somebody's model card\n")
    assert "card.md" in complaint(capsys, "passk", "--example", "--table", card)
    assert card.read_text() == "# Somebody's model card\n"


def test_the_hub_reads_the_table(tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    if not hasattr(hub, "parse_eval_result_entries"):
        pytest.skip("this version of huggingface_hub does not know .eval_results")
    file = tmp_path / "gsm8k.yaml"
    main(["passk", "--example", "--table", str(file), "--benchmark", "openai/gsm8k:gsm8k"])
    [entry] = hub.parse_eval_result_entries(yaml.safe_load(file.read_text(encoding="utf-8")))
    assert (entry.dataset_id, entry.task_id, entry.value) == ("openai/gsm8k", "gsm8k", 68.01)
    assert entry.notes.startswith("pass@1 68.0 (95 % 65.6 to 70.4), pass@128 87.1 (95 % 85.0 to 89.0); 1060 problems")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--table", "card.txt"], "unknown ending"),
        (["--table", "hub.yaml"], "needs --benchmark DATASET:TASK"),
        (["--table", "hub.yaml", "--benchmark", "gsm8k"], "needs --benchmark DATASET:TASK"),
        (["--table", "card.md", "--benchmark", "a/b:c"], "leave it out"),
        (["--benchmark", "a/b:c"], "add --table FILE.yaml"),
        (["--table", "hub.yaml", "--benchmark", "a/b:c", "--k", "2"], "add 1 to --k"),
    ],
)
def test_tables_that_cannot_be_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in complaint(capsys, "passk", "--example", *words)
    assert not list(tmp_path.iterdir())


def test_the_example_takes_no_other_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "--example" in complaint(capsys, "passk", samples(tmp_path, "one.jsonl", rows("Ab")), "--example")
    assert "dph passk --example" in complaint(capsys, "passk")
