"""The command line: `python -m experiments STUDY [--config FILE …] [settings …]`."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from dph.cli.flags import parse_flags

from dph.config import check_bounds, from_dict, read_settings
from dph.errors import Interrupted, UserError, one_line
from dph.process.progress import show, show_messages
from experiments.config import ReproduceConfig
from experiments.grid import ROOT

STUDIES = {
    "paper": ("full", "launches for the paper's own models, on a cluster; runs nothing"),
    "tiny": ("tiny", "every method of the paper in the embedded world, with a small model made from scratch"),
    "bench": ("bench", "every method with its own tuned settings, in several embedded worlds"),
    "llm_embedded": ("llm_embedded", "a language model in the embedded world, with questions in plain English"),
    "llm": ("llm", "a language model on Spider (--data SPIDER)"),
    "llm_medium": ("llm_medium", "the same in an afternoon: a fixed supervised start, two of three domains"),
    "llm_short": ("llm_short", "the same in two hours, for processors without bf16"),
    "small": ("small", "Spider with a model made from scratch (--data SPIDER)"),
}
"""Scale and description by the name of a study."""
_ANY = "reproduce"
"""The command of which `--scale` names the study."""


def parse(words: Sequence[str]) -> ReproduceConfig:
    """The settings of a study: defaults, then files of `--config`, then flags. Raises UserError for what cannot be
    meant."""
    study, *rest = words
    if study != _ANY and study not in STUDIES:
        raise UserError(f"no study is named {study!r}; there are: {', '.join([*STUDIES, _ANY])}")
    common = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    common.add_argument("--config", action="append", default=[])
    common.add_argument("--resume", action="store_true")  # the same command always goes on
    try:
        named, rest = common.parse_known_args(rest)
    except argparse.ArgumentError as error:
        raise UserError(f"{error.argument_name} needs a value") from error
    default = ReproduceConfig(scale=STUDIES[study][0]) if study in STUDIES else ReproduceConfig()
    for file in named.config:
        default = from_dict(ReproduceConfig, read_settings(Path(file)), f"the settings in {file}", default)
    settings = parse_flags(f"python -m experiments {study}", default, rest, f"{_overview()}\n\n--config FILE: settings")
    check_bounds(settings)
    return settings


def _overview() -> str:
    lines = [f"  {name:<13} {text}" for name, (_, text) in STUDIES.items()]
    head = "usage: python -m experiments STUDY [settings]; the same command continues an interrupted study"
    return "\n".join([head, "", *lines, f"  {_ANY:<13} the study that --scale names (tiny)"])


def run(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Exit status: 0 done; 1 a bug (traceback); 2 a mistake that the user can fix (one sentence); 129, 130
    and 143 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    show_messages()
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        sys.exit(0 if words else 2)
    try:
        settings = parse(words)
        from experiments.run import reproduce  # loads matplotlib

        # the jobs import the plug-in of a world from here
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        reproduce(settings)
    except UserError as error:
        _complain(str(error))
        sys.exit(2)
    except OSError as error:
        if error.filename is None:
            raise
        _complain(f"cannot use {error.filename}: {error.strerror}")
        sys.exit(2)
    except KeyboardInterrupt as error:
        stop = error if isinstance(error, Interrupted) else Interrupted(signal.SIGINT)
        _complain(str(stop))
        sys.exit(128 + stop.number)


def _complain(text: str) -> None:
    show(f"experiments: {one_line(text)}")
