"""The reason why the files of a model cannot be read: the file, and the key whose value the libraries do not take.

The errors of the libraries often name neither ("'int' object is not iterable"). So the values in the files are left out
one at a time. The first value without which reading succeeds is the value to correct.
"""

import copy
import functools
import json
import logging
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dph.config.text import read_json
from dph.errors import UserError, one_line

_SECONDS = 20.0
"""The time limit of the search for the key. Reading a large tokenizer takes about a second."""
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".py")
"""Ends of the names of files that are not needed to read the other files, or that must not be read."""
_LAST = ("tokenizer_class", "backend", "auto_map", "architectures")
"""Keys without which the libraries choose another way to read the other values. They are suspected last."""
_MOST_KEYS = 50
"""The largest number of keys of an inner object for which each key is tried. A vocabulary has more."""
_MISMATCH = re.compile(r"^([^|\n]+?)\s*\|\s*MISMATCH\b(.*)", re.MULTILINE)
_SHAPES = re.compile(r"torch\.Size\((.*?)\)")


def is_panic(error: BaseException) -> bool:
    """Whether an error is the panic of a library written in Rust, which came to a state that it does not expect. A
    panic is not an Exception."""
    return type(error).__name__ == "PanicException"


@contextmanager
def load_report() -> Iterator[list[str]]:
    """Context in which transformers prints no report of missing and other weights. Yields a list to which the texts of
    the reports are added. The messages of dph say what the reports say."""
    found: list[str] = []
    logger = logging.getLogger("transformers")
    level, lowest = logger.level, logger.getEffectiveLevel()
    handlers = list(logger.handlers)

    def shown(record: logging.LogRecord) -> bool:
        return record.levelno >= lowest and "LOAD REPORT" not in record.getMessage()

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "LOAD REPORT" in (text := record.getMessage()):
                found.append(text)

    kept = Kept()
    for handler in handlers:
        handler.addFilter(shown)
    logger.addHandler(kept)
    logger.setLevel(min(lowest, logging.WARNING))  # the report is a warning, and a program may have turned warnings off
    try:
        yield found
    finally:
        logger.setLevel(level)
        logger.removeHandler(kept)
        for handler in handlers:
            handler.removeFilter(shown)


def mismatch_in(reports: Sequence[str]) -> str:
    """A clause that names the weights whose shape differs from the shape that the settings describe, by the reports of
    transformers; "" if no weights differ."""
    if (match := _MISMATCH.search("\n".join(reports))) is None:
        return ""
    shapes = _SHAPES.findall(match[2])  # the report for a narrow terminal has no shapes
    sizes = f": {shapes[0]}, and not {shapes[1]}" if len(shapes) == 2 else ""
    return f"the weights {match[1]} are not of the shape that its config.json describes{sizes}"


def wrong_value(folder: Path) -> str:
    """The fault in the files of a model.

    The result is "FILE has KEY VALUE" for the first value without which the settings, the tokenizer and a model without
    weights can be made. It is the name of the file, or names of files, if no such key is found within 20 s, and "" if
    everything can be made.
    """
    end = time.monotonic() + _SECONDS
    with _silent():
        for read, names in _STEPS:
            if _reads(read, folder):
                continue
            there = [name for name in names if (folder / name).is_file()]
            for file, table, keys in _suspects(folder, there):
                if time.monotonic() > end:
                    break
                *above, key = keys
                owner = copy.deepcopy(table)
                value = functools.reduce(lambda inner, name: inner[name], above, owner).pop(key)
                with _with(folder, file, owner) as reduced:
                    if _reads(read, reduced):
                        return one_line(f"{file} has {'.'.join(keys)} {json.dumps(value):.80}", 300)
            return " or ".join(there)
    return ""


def _config(folder: Path) -> None:
    from transformers import AutoConfig

    AutoConfig.from_pretrained(folder, trust_remote_code=False)


def _tokenizer(folder: Path) -> None:
    from transformers import AutoTokenizer

    try_tokenizer(AutoTokenizer.from_pretrained(folder, trust_remote_code=False))


def _model(folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    with torch.device("meta"):
        AutoModelForCausalLM.from_config(config, attn_implementation="eager", trust_remote_code=False)


def _generation(folder: Path) -> None:
    from transformers import GenerationConfig

    if (file := folder / "generation_config.json").exists():
        GenerationConfig.from_dict(read_json(file)).validate()


_STEPS: tuple[tuple[Callable[[Path], None], tuple[str, ...]], ...] = (
    (_config, ("config.json",)),
    (_tokenizer, ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.json")),
    (_model, ("config.json",)),
    (_generation, ("generation_config.json",)),
)
"""The functions that read the files, in the order of their calls, each with the names of the files that it reads."""


def try_tokenizer(tokenizer: Any) -> None:
    """Encode and decode an empty text. A tokenizer whose settings have values of wrong types fails only when it is
    used."""
    tokenizer.decode(tokenizer("", add_special_tokens=False)["input_ids"])


def _reads(read: Callable[[Path], None], folder: Path) -> bool:
    try:
        read(folder)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        return False
    return True


def _suspects(folder: Path, names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any], tuple[str, ...]]]:
    """The keys of files that hold JSON objects, and then the keys of the objects inside them. Yields the file, the
    whole object, and the path of the key in the object."""
    for name in names:
        try:
            table = read_json(folder / name)
        except UserError:  # the error of the library says why
            continue
        if not isinstance(table, dict):
            continue
        keys = [key for key in sorted(table, key=_LAST.__contains__) if key != "model_type"]
        yield from ((name, table, (key,)) for key in keys)
        inner = {key: value for key in keys if isinstance(value := table[key], dict) and len(value) <= _MOST_KEYS}
        yield from ((name, table, (key, item)) for key, value in inner.items() for item in value)


@contextmanager
def _with(folder: Path, file: str, table: Mapping[str, Any]) -> Iterator[Path]:
    """Context in which there is a copy of a folder, made of links, in which one file holds another object. Files of
    weights are left out."""
    copy = Path(tempfile.mkdtemp())
    try:
        for path in folder.iterdir():
            if path.is_file() and path.name != file and not path.name.endswith(_WEIGHTS):
                (copy / path.name).symlink_to(path.resolve())
        (copy / file).write_text(json.dumps(table))
        yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)


@contextmanager
def _silent() -> Iterator[None]:
    logger = logging.getLogger("transformers")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
