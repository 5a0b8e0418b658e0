"""`scripts/gpu`: time limits, pieces of a model file, missing packages, and what its tables say."""

import argparse
import json
import sys
import time
import zipfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AttentionInterface

from benchmarks._support import shapes, workload
from benchmarks._support.lines import Lines, read_lines
from benchmarks._support.shapes import Where
from benchmarks.gpu import decode, devices, exactness, packages, pieces, profile, trainers
from benchmarks.gpu.limits import Command, run_part, shorten
from benchmarks.gpu.plan import LIMITS, USUAL, Settings, planned
from benchmarks.gpu.table import page
from dph.models.policy import Policy
from dph.models.sharing import NAME, shared_prefix_attention

NOTE = "import json, sys; open(sys.argv[1], 'a').write(json.dumps({'what': 'result', 'value': 7}) + '\\n')"


def python(code: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", code, *words)


# Time limits --------------------------------------------------------------------------------------------------------


def test_a_limit_stops_a_command_and_keeps_its_results(tmp_path: Path) -> None:
    results, sign = tmp_path / "a.jsonl", tmp_path / "still-alive"
    child = f"import time; time.sleep(4); open({str(sign)!r}, 'w')"
    hangs = f"{NOTE}; import subprocess; subprocess.run([sys.executable, '-S', '-c', {child!r}])"
    commands = [
        Command("hangs", python(hangs, str(results)), 2.0),
        Command("fails", python("raise SystemExit(3)")),
        Command("works", python(NOTE, str(results))),
    ]
    ends = run_part("a", commands, 60.0, tmp_path, {})
    assert ends == {"hangs": "stopped", "fails": "failed", "works": "ok"}
    found = read_lines([results])
    assert [line["what"] for line in found] == ["result", "command", "command", "result", "command"]
    assert [line["end"] for line in found if line["what"] == "command"] == ["stopped", "failed", "ok"]
    time.sleep(4.5)
    assert not sign.exists(), "what the command had started was stopped with it"


def test_a_part_ends_when_its_own_time_is_over(tmp_path: Path) -> None:
    commands = [Command("long", python("import time; time.sleep(60)"), 50.0), Command("next", python(""), 50.0)]
    started = time.monotonic()
    assert run_part("b", commands, 1.0, tmp_path, {}) == {"long": "stopped", "next": "not run"}
    assert time.monotonic() - started < 30


def test_commands_side_by_side_wait_for_what_they_read(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    make = "import pathlib, sys, time; time.sleep(0.5); pathlib.Path(sys.argv[1]).touch(); print('made')"
    wait = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)"
    needs = "import pathlib, sys; sys.exit(not pathlib.Path(sys.argv[1]).exists())"
    commands = [
        Command("waits", python(wait, str(second)), 30.0),  # would not end if the commands ran one after the other
        Command("first", python(make, str(first)), 30.0),
        Command("reads", python(needs, str(first)), 30.0, after="first"),
        Command("second", python(make, str(second)), 30.0, after="reads"),
    ]
    ends = run_part("a", commands, 60.0, tmp_path, {}, together=True)
    assert ends == dict.fromkeys(["waits", "first", "reads", "second"], "ok")
    assert (tmp_path / "a.log").read_text().count("made") == 2


def test_kernels_are_counted_by_kind() -> None:
    found = profile.by_kind([("flash_bwd<cutlass::bfloat16_t>", 2.0), ("nvjet_sm90", 3.0), ("nothing known", 1.0)])
    assert (found["attention"], found["matrix products"], found["other"]) == (2.0, 3.0, 1.0)


def test_a_long_log_keeps_its_end(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("abcdef")
    shorten(log, 4)
    assert log.read_text() == "cdef"


class Read(Exception):
    """A command's options have been read; its arguments are those that are unknown."""


def settings(tmp_path: Path, *, toy: bool = False) -> Settings:
    return Settings(tmp_path / "out", tmp_path / "work", "cuda", toy, None, None)


def test_the_usual_parts_fit_into_34_minutes_and_each_into_9(tmp_path: Path) -> None:
    found = {part: planned(part, settings(tmp_path)) for part in USUAL}
    assert sum(limit for _, limit in found.values()) <= 34 * 60
    assert all(limit <= 9 * 60 for _, limit in found.values())
    assert USUAL[0] == "first" and found["a"][0] and found["b"][0] and not found["c"][0], "part c needs a model"
    commands, limit = planned("trainers", settings(tmp_path))
    found["trainers"] = commands, limit
    assert sum(command.seconds for command in commands) <= limit <= 30 * 60
    assert all(command.seconds <= limit for commands, limit in found.values() for command in commands)


def test_a_part_fits_into_less_time(tmp_path: Path) -> None:
    given = replace(settings(tmp_path), model=tmp_path / "model.gguf", most=100.0)
    for part in LIMITS:
        commands, limit = planned(part, given)
        assert limit == 100.0 and all(command.seconds <= 100.0 for command in commands)
    (real,) = planned("c", given)[0]
    assert real.words[real.words.index("--seconds") + 1] == "30", "it saves its state before it is stopped"


def test_the_dry_run_has_every_part_and_no_gpu(tmp_path: Path) -> None:
    for part in LIMITS:
        commands, _ = planned(part, Settings(tmp_path, tmp_path, "cpu", True, None, None))
        assert commands and not any("cuda" in word for command in commands for word in command.words)


def test_every_benchmark_reads_its_full_size_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run has other options, so without a GPU nothing else reads these."""
    parse, read = argparse.ArgumentParser.parse_known_args, []

    def parse_only(self: argparse.ArgumentParser, *_: object) -> None:
        rest = parse(self)[1]
        raise Read(*rest)

    for name in ("parse_args", "parse_known_args"):
        monkeypatch.setattr(argparse.ArgumentParser, name, parse_only)
    given = replace(settings(tmp_path), model=tmp_path / "model.gguf")
    for part in LIMITS:
        for command in planned(part, given)[0]:
            name, *words = command.words[2:]
            module = import_module(name)
            if hasattr(module, "main"):  # not dph, whose options have tests of their own
                monkeypatch.setattr(sys, "argv", [name, *words])
                with pytest.raises(Read) as found:
                    module.main()
                rest = found.value.args
                assert not rest or rest[0].startswith("--rollout."), "kill passes settings on to dph train"
                read.append(name)
    assert {"benchmarks.engines.step", "benchmarks.gpu.decode", "benchmarks.speed.generate"} <= set(read)


def test_decoding_is_measured_with_the_decoder_that_sampling_takes() -> None:
    model = shapes.random_model(shapes.settings("0.8M"), Where("cpu", "bf16")).eval()
    tokenizer: Any = SimpleNamespace(eos_token_id=1)
    policy = Policy(model, tokenizer, precision="bf16")
    options = argparse.Namespace(prompt=8, responses=3, tokens=4, draws=False)
    found = decode.measure(policy, 6, options, time.process_time)
    assert (found["rows"], found["decoder"], found["replayed"]) == (6, "SharedDecoder", False)


def test_a_trainer_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("TRL", "VLLM", "VERL"):
        monkeypatch.setenv(f"DPH_VENV_{name}", str(tmp_path / "none"))
    monkeypatch.setitem(trainers.PACKAGES, "verl", ("json", "no_such_module"))
    assert trainers.chosen("verl") == (sys.executable, ["no_such_module"])
    lines = tmp_path / "trainers.jsonl"
    for toy, status in ((["--toy"], 0), ([], 1)):
        monkeypatch.setattr(sys, "argv", ["trainers", "verl", "--lines", str(lines), *toy])
        assert trainers.main() == status
    said = "verl: not run, because no_such_module is not installed with this package; for a GPU: pip install -c"
    assert capsys.readouterr().out.count(said) == 2 and f"- {said}" in page(tmp_path)
    assert trainers.missing("trl", ["vllm"], False)[1], "TRL is measured without vLLM too"
    assert not trainers.missing("verl", ["vllm"], False)[1] and trainers.missing("verl", ["vllm"], True)[1]


# Results ------------------------------------------------------------------------------------------------------------


def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Lines(path, device="cpu").add("one", value=1)
    with path.open("a") as file:
        file.write('{"what": "tw')
    assert read_lines([path, tmp_path / "missing"]) == [{"what": "one", "device": "cpu", "value": 1}]


def test_the_table_compares_shared_prompts_with_the_plain_path(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "b.jsonl", device="card", torch="2")
    common = {"model": "0.5B", "prompt": 2048, "response": 256, "n": 8, "method": "GRPO", "square_rate": 5e14}
    common |= {"precision": "bf16", "attention": "by trial"}
    lines.add("update", **common, shared=False, seconds=0.9, mfu=0.3, bytes=3e9)
    lines.add("update", **common, shared=True, seconds=0.2, mfu=0.4, bytes=2e9)
    kinds = {"attention": 0.07, "other": 0.13}
    lines.add("profile", model="0.5B", prompt=2048, response=256, seconds=0.25, busy=0.2, kernels=9, kinds=kinds)
    lines.add("command", name="update", end="ok", seconds=3.0)
    decoded = {"rows": 512, "step": 0.004, "drawing": 0.001, "limit": 0.002, "replayed": True}
    Lines(tmp_path / "first.jsonl").add("decode", model="0.5B", precision="bf16", **decoded)
    text = page(tmp_path)
    # 0.9 s / 0.2 s = 4.5; 5e14 operations a second are 500 TFLOP/s
    assert "| 0.5B | bf16 | by trial | 2048+256 × 8 | GRPO | 900 | 200 | 4.50 | 30% | 40% | 3.0 | 2.0 | 500.0 |" in text
    assert "| 0.5B | 2048+256 | 250 | 200 | 9 | 70 | 130 |" in text
    assert "| 0.5B | bf16 | 512 | yes | 4.00 | 1.00 | 2.00 | 128000 |" in text, "512 rows in 4 ms"
    assert "card, torch 2" in text and "## Steps" not in text


def test_the_table_compares_trainers(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "trainers.jsonl", trainer="TRL", model="0.5B", vllm=True)
    times = {"step": 4.0, "generation": 1.0, "log-probs": 0.5, "bytes": 3e9, "from fp32": 0.02, "sampler": 0.01}
    sizes = {"prompt": 512, "response": 256, "prompts": 4, "responses": 16}
    shared = times | {"update": 0.8, "step": 2.0}
    lines.add("trainer", **sizes, difference=0.03, stock=times | {"update": 2.0}, shared=shared)
    row = "| TRL | vLLM | 0.5B | 512+256 × 16 | 4 | 2.00 / 0.80 | 2.50 | 4.00 / 2.00 | 2.00 | 1.00 / 1.00 |"
    assert row in page(tmp_path)


def test_runs_agree_if_only_rounding_separates_them() -> None:
    step = {"step": 1.0, "reward": 0.5, "loss": 0.01}
    later = {"step": 2.0, "reward": 0.75, "loss": 0.5}
    assert devices.judge([step, later], [step, later])["ok"]
    assert devices.judge([step, later | {"loss": 0.9, "reward": 0.7}], [step, later])["ok"], "later steps may differ"
    assert not devices.judge([step | {"loss": 0.02}, later], [step, later])["ok"]
    assert not devices.judge([step | {"loss": float("nan")}, later], [step, later])["ok"]
    assert not devices.judge([step, later | {"reward": 0.2}], [step, later])["ok"]
    assert not devices.judge([step | {"more": 1.0}, later], [step, later])["ok"]


@pytest.mark.parametrize(
    ("dtype", "name", "right"), [("bf16", "varlen", True), ("bf16", "flex", False), ("fp32", "flex", True)]
)
def test_attention_on_a_gpu_in_bf16_must_be_varlen(
    dtype: str, name: str, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactness, "choose", lambda *_: (name, {}))
    types = {"bf16": torch.bfloat16, "fp32": torch.float32}
    assert exactness.note_attention("cuda", (types[dtype],), Lines(None)) == right


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's compiler asks for it
def test_compiled_layers_compute_the_same_update(monkeypatch: pytest.MonkeyPatch) -> None:
    size = workload.smallest(workload.Size())
    losses = []
    for compiled in ([], ["eager"]):
        monkeypatch.setattr(workload, "_COMPILED", compiled)
        update = workload.Update("GRPO", size, shared=True, budget=2048, where=Where())
        losses.append([update() for _ in range(3)][-1])
    AttentionInterface.register(NAME, shared_prefix_attention)  # as it was
    assert losses[1] == pytest.approx(losses[0], abs=1e-6)


def test_a_sampler_whose_log_probabilities_are_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for precision in ("fp32", "bf16"):
        found = exactness.judge("llama", Where("cpu", precision))
        assert found and found["ok"] and found["packed"]
    response_logprobs = exactness.Policy.response_logprobs

    def shifted(self, *given):
        return [[value + 0.01 for value in row] for row in response_logprobs(self, *given)]

    monkeypatch.setattr(exactness.Policy, "response_logprobs", shifted)
    found = exactness.judge("llama", Where())
    assert found and not found["ok"] and found["sampled"]["sampler_trainer"] == pytest.approx(0.01, abs=1e-4)


# Pieces -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "model.gguf"
    file.write_bytes(bytes(range(256)) * 10)
    return file


def test_pieces_come_in_several_calls_and_are_joined(model: Path, tmp_path: Path) -> None:
    made, store = pieces.cut(model, tmp_path / "cut", 1000), tmp_path / "store"
    assert [piece.name for piece in made] == ["model.gguf.000", "model.gguf.001", "model.gguf.002"]
    last = made[2].read_bytes()
    made[2].unlink()
    assert pieces.gather(tmp_path / "cut", store) == ["model.gguf.002"]
    with pytest.raises(pieces.Damaged, match="lacks 1 of 3 pieces, such as"):
        pieces.join(store)
    for piece in made[:2]:
        piece.unlink()
    made[2].write_bytes(last)
    assert pieces.gather(tmp_path / "cut", store) == []
    assert pieces.join(store).read_bytes() == model.read_bytes()
    assert pieces.join(store).name == "model.gguf"


def test_a_damaged_piece_is_refused(model: Path, tmp_path: Path) -> None:
    made = pieces.cut(model, tmp_path / "cut", 1000)
    made[1].write_bytes(b"x" * 1000)
    with pytest.raises(pieces.Damaged, match=r"model\.gguf\.001 is not the piece that"):
        pieces.gather(tmp_path / "cut", tmp_path / "store")
    with pytest.raises(pieces.Damaged, match=r"do not give model\.gguf"):
        pieces.join(tmp_path / "cut")
    assert not (tmp_path / "cut" / "model.gguf").exists()


def test_without_a_list_of_sums_nothing_is_joined(tmp_path: Path) -> None:
    with pytest.raises(pieces.Damaged, match="has no SHA256SUMS; make the pieces with"):
        pieces.gather(tmp_path, tmp_path / "store")


# Packages -----------------------------------------------------------------------------------------------------------


def put_package(folder: Path, name: str, version: str, *needs: str) -> None:
    """A package that is installed in a folder, as far as its metadata say."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {n}" for n in needs)]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


def put_wheel(folder: Path, name: str, version: str) -> None:
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that needs three packages, one of which needs a fourth."""
    wanted = {"core": ["alpha>=2", "beta", "torch", "gone; python_version < '3'"], "llm": ["gamma"]}
    text = f"[project]\ndependencies = {json.dumps(wanted['core'])}\n"
    text += f"[project.optional-dependencies]\nllm = {json.dumps(wanted['llm'])}\n"
    (tmp_path / "pyproject.toml").write_text(text)
    monkeypatch.setattr(packages, "ROOT", tmp_path)
    put_package(tmp_path / "site", "beta", "1", "delta>=1", "other; extra == 'x'")
    put_package(tmp_path / "site", "torch", "2", "what-torch-runs-without")
    return tmp_path / "site"


def test_missing_packages_are_named_in_one_sentence(project: Path) -> None:
    with pytest.raises(packages.Missing) as raised:
        packages.check([str(project)], "llm")
    message = str(raised.value)
    assert message.startswith(
        "missing here: alpha>=2, delta>=1 (for beta), gamma; bring them in a folder with --wheels"
    )
    assert "\n" not in message
    put_package(project, "delta", "1.5")
    put_package(project, "alpha", "1.9")
    with pytest.raises(packages.Missing, match=r"^missing here: alpha>=2; bring"):
        packages.check([str(project)])


def test_only_what_is_missing_or_too_old_is_installed(project: Path, tmp_path: Path) -> None:
    put_package(project, "delta", "0.5")
    for name in ("alpha", "beta", "delta"):
        put_wheel(tmp_path / "wheels", name, "2.0")
    target = tmp_path / "target"
    assert packages.install(tmp_path / "wheels", target, [str(project)]) == ["alpha", "delta"]
    packages.check([str(target), str(project)])
    assert (target / "alpha.py").read_text() == "VERSION = '2.0'\n" and not (target / "beta.py").exists()
    assert packages.install(tmp_path / "wheels", target, [str(project)]) == []
    with pytest.raises(packages.Missing, match=r"there is no folder .*nowhere with wheels"):
        packages.install(tmp_path / "nowhere", target, [])


def test_the_commands_name_what_torch_and_transformers_do_not_bring() -> None:
    download, build = packages.download_commands("WHEELS", "math", "report")
    words = {word.partition("==")[0] for word in download.split()}
    assert {"math-verify", "sqlglot", "plotly", "narwhals"} <= words, "narwhals is what plotly needs"
    assert not {"torch", "transformers", "numpy", "safetensors", "word2number"} & words
    assert "--python-version 3.12" in download and "word2number==" in build
