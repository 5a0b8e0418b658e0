"""Files of others that would run code, lead out of their folder, or tell a terminal what to do, and for every command
the lines that read them. A new command needs an entry in `CALLS`: the tests compare it with the command line."""

import functools
import hashlib
import json
import os
import pickle
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tomli_w

from dph.cli.main import main
from dph.config import STAGES, every_setting
from dph.config.settings import Code
from helpers import base_run, folder, presampled

TOY = ("--task.name", "toy", "--rollout.max-tokens", "4", "--rollout.n", "2")
TRAIN = ("train", "--preset", "grpo", *TOY, "--rollout.prompts", "2", "--steps", "1")
JUDGED = ("verify", "--task", "records", "--task.split", "train", "--column", "response")
MAKE_RUNS = ("sft", "presample", "train", "eval", "verify")
"""The commands whose run directories other commands read."""


@functools.cache
def finished(stage: str) -> Path:
    """A finished run of a stage."""
    if stage in ("sft", "presample"):
        return {"sft": base_run, "presample": presampled}[stage]()
    out, data, model = folder() / stage, str(data_file()), str(base_run() / "model")
    words = {
        "train": (*TRAIN, "--model.path", model),
        "eval": ("eval", *TOY, "--model.path", model),
        "verify": (*JUDGED, "--data", data, "--predictions", data),
    }
    main([*words[stage], "--out", str(out)])
    return out


@functools.cache
def data_file() -> Path:
    path = folder() / "data.jsonl"
    path.write_text('{"prompt": "easy 1", "response": " yes", "answer": "yes", "verifier": "exact", "id": "a"}\n')
    return path


class Mkdir:
    """Unpickling it makes a directory."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def named_code(stage: str, evil: Path) -> dict[str, Any]:
    """For each setting of a stage that names code, a value that names this file."""
    values = {str: f"{evil}:reward", bool: True}
    kinds = {s.name: s.kind for s in every_setting(STAGES[stage]()) if any(isinstance(m, Code) for m in s.bounds)}
    found = {name: values.get(kind, [str(evil)]) for name, kind in kinds.items()}
    return found | {name: "owner/kernel" for name in found if name.endswith("attention")}


class Trap:
    """A folder of hostile files, and the mark that their code leaves."""

    def __init__(self, folder: Path, kind: str = "settings") -> None:
        self.folder, self.mark, self.kind = folder, folder / "ran", kind
        self.evil = folder / "evil.py"
        self.evil.write_text(
            f"from pathlib import Path\nPath({str(self.mark)!r}).touch()\ndef reward(*_, **__): return 1.0\n"
            "class Config: pass\n"
        )
        self.numbers = iter(range(1000))
        self.runs = {stage: self.run(stage) for stage in MAKE_RUNS}
        self.model, self.data = f"{self.runs['sft']}/model", data_file()
        self.preset = folder / "preset.toml"
        self.preset.write_text(f'plugins = ["{self.evil}"]\n')

    def new(self) -> str:
        """A path that nothing has."""
        return str(self.folder / f"new-{next(self.numbers)}")

    def run(self, stage: str) -> str:
        """A copy of a finished run whose settings name code, and whose models are spoiled."""
        path = self.folder / stage
        shutil.copytree(finished(stage), path)
        if not (path / "model").exists():
            shutil.copytree(base_run() / "model", path / "model")
        settings: dict[str, Any] = tomllib.loads((path / "config.toml").read_text()) | {"plugins": [str(self.evil)]}
        if "reward" in settings:
            settings["reward"] |= {"function": f"{self.evil}:reward", "in_process": True}
        if "model" in settings:
            used = self.folder / ("sft" if stage == "train" else stage) / "model"
            settings["model"] |= {"trust_remote_code": True, "path": str(used)}
        (path / "config.toml").write_text(tomli_w.dumps(settings))
        self.spoil(path / "model")
        for name in ("dph", "json", "sitecustomize", "tokenizer", "model/json"):
            (path / f"{name}.py").write_text(self.evil.read_text())
        return str(path)

    def resumed(self, stage: str) -> Iterator[tuple[str, ...]]:
        """Command lines that go on in a run of a stage: by its own settings alone, complete and interrupted, for each
        setting that names code; and by asked settings in a run whose last model is spoiled, with fitting checksums."""
        plain = tomllib.loads((finished(stage) / "config.toml").read_text())
        for name, value in named_code(stage, self.evil).items():
            for status in ("complete", "running"):
                path = self._copy(stage, status)
                *tables, key = name.split(".")
                settings = json.loads(json.dumps(plain))
                functools.reduce(lambda tree, table: tree[table], tables, settings)[key] = value
                (path / "config.toml").write_text(tomli_w.dumps(settings))
                yield stage, "--resume", "--out", str(path)
                yield stage, "--config", str(path / "config.toml"), "--out", self.new()
        path = self._copy(stage, "running")
        asked = shutil.copy(path / "config.toml", f"{path}.toml")
        for model in path.glob("checkpoints/*/model"):
            self.spoil(model)
            files = [file for file in model.parent.rglob("*") if file.is_file() and file.name != "checksums.json"]
            sums = {str(f.relative_to(model.parent)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
            (model.parent / "checksums.json").write_text(json.dumps(sums))
        yield stage, "--config", str(asked), "--out", str(path), "--resume"
        yield stage, "--resume", "--out", str(path)

    def _copy(self, stage: str, status: str) -> Path:
        path = Path(self.new())
        shutil.copytree(finished(stage), path)
        manifest = json.loads((path / "manifest.json").read_text())
        (path / "manifest.json").write_text(json.dumps(manifest | {"status": status}))
        return path

    def spoil(self, model: Path) -> None:
        """Put code into a model's folder, or leave it as it is if the settings alone name code."""

        def change(name: str, **values: Any) -> None:
            (model / name).write_text(json.dumps(json.loads((model / name).read_text()) | values))

        shutil.copy(self.evil, model / "own.py")
        if self.kind == "code of the model":
            change("config.json", model_type="own", auto_map={"AutoConfig": "own.Config"})
        if self.kind == "code of the tokenizer":
            own = ["own.Config", "own.Config"]
            change("tokenizer_config.json", tokenizer_class="Own", auto_map={"AutoTokenizer": own})
        if self.kind == "a chat template":
            call = "{{ cycler.__init__.__globals__.os.mkdir('" + str(self.mark) + "') }}"
            (model / "chat_template.jinja").write_text(call)
        if self.kind.startswith("pickles"):
            (model / "evil.bin").write_bytes(pickle.dumps(Mkdir(str(self.mark))))
            (model / "model.safetensors").rename(model / "other.safetensors")
        if self.kind == "pickles by the index":
            index = {"metadata": {}, "weight_map": {"model.norm.weight": "evil.bin"}}
            (model / "model.safetensors.index.json").write_text(json.dumps(index))
        if self.kind == "pickles by the settings":
            (model / "evil.bin").rename(model / "adapter_model.bin")
            (model / "adapter_model.safetensors").write_bytes(b"")
            change("config.json", transformers_weights="adapter_model.bin")


KINDS = (
    *("settings", "code of the model", "code of the tokenizer", "a chat template"),
    *("pickles by the index", "pickles by the settings"),
)
"""What is hostile in the models of a trap's runs."""

CALLS: dict[str, Callable[[Any], list[tuple[Any, ...]]]] = {
    "demo": lambda h: [("--smoke", "--out", h.new(), "--methods", h.preset), ("--out", h.new(), "--world", h.preset)],
    "init": lambda h: [("maths", h.data, "--out", h.new())],
    "check": lambda h: [(*TOY, "--model.path", h.model), (h.data, "--model.path", h.model)],
    "sft": lambda h: [("--model.path", h.model, "--data", h.data, "--steps", "1", "--out", h.new())],
    "presample": lambda h: [
        (*TOY, "--threshold", "1", "--model.path", h.model, "--out", h.new()),
        ("--task", "records", "--data", h.data, "--threshold", "1", "--model.path", h.model, "--out", h.new()),
    ],
    "train": lambda h: [
        (*TRAIN[1:], "--model.path", h.model, "--out", h.new()),
        (*TRAIN[1:], "--model.path", base_run() / "model", "--rehearsal.path", h.runs["presample"], "--out", h.new()),
    ],
    "eval": lambda h: [
        (*TOY, "--model.path", h.model, "--out", h.new()),
        (*TOY, "--task", "records", "--data", h.data, "--model.path", base_run() / "model", "--out", h.new()),
    ],
    "verify": lambda h: [(*JUDGED[1:], "--data", h.data, "--predictions", h.data, "--out", h.new())],
    "certify": lambda h: [
        (h.runs["eval"], h.runs["eval"]),
        (h.runs["presample"], h.runs["train"], "--out", h.new()),
    ],
    "interpolate": lambda h: [
        (h.runs["train"], "--out", h.new()),
        (h.runs["train"], "--initial", base_run() / "model", "--out", h.new()),
        (h.runs["train"], "--certify.set", h.runs["presample"], "--out", h.new()),
    ],
    "passk": lambda h: [(h.runs["eval"], h.runs["eval"]), (h.data, h.data, "--json", "--html", h.new())],
    "judge": lambda h: [("--every", "2000"), ("--sql", "--every", "40", "--json")],
    "audit": lambda h: [(*TOY, "--model.path", h.runs["sft"], "--after", h.runs["train"], "--out", h.new())],
    "report": lambda h: [(h.runs["eval"], h.runs["train"], "--out", h.new()), (h.runs["verify"], "--out", h.new())],
    "verl": lambda h: [
        ("--preset", "grpo", "--model.path", h.model, "--out", h.new()),
        *[("--preset", "dph_js", "--model.path", h.model, "--rehearsal.path", h.runs["presample"], "--out", h.new())],
    ],
    "doctor": lambda h: [
        ("--no-smoke", "--out", h.runs["train"]),
        ("--no-smoke", "--json"),
        *((h.runs[stage],) for stage in ("train", "eval")),
        (h.data, "--json"),
    ],
}
"""For every command the words with which it reads hostile files: the tests fail for a command without an entry."""
