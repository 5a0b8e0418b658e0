"""The command line: `python -m experiments STUDY [--config FILE …] [settings …]`."""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dph.cli.arguments import Parser
from dph.cli.main import ending
from dph.config import field_docs, from_dict, read_settings
from dph.errors import UserError
from dph.process.progress import show_messages
from experiments.config import ReproduceConfig

STUDIES = {
    "paper": ("full", "launches for the paper's own models, on a cluster; runs nothing"),
    "tiny": ("tiny", "every method of the paper in the SQL world, with a small model made from scratch"),
    "bench": ("bench", "every method with its own tuned settings, in several SQL worlds"),
    "llm_embedded": ("llm_embedded", "a language model in the SQL world, with questions in plain English"),
    "llm": ("llm", "a language model on Spider (--data SPIDER)"),
    "llm_medium": ("llm_medium", "the same in an afternoon: a fixed supervised start, two of three domains"),
    "llm_short": ("llm_short", "the same in two hours, for processors without bf16"),
    "maths": ("maths", "a language model on arithmetic word problems: pass@k and mean@k"),
    "bird": ("bird", "a language model on BIRD's databases at hand (--data DATA with the folders bird and spider)"),
    "orthogonal": ("orthogonal", "three additions to GRPO, each with and without DPH-JS, on Countdown"),
    "maths_gpu": ("maths_gpu", "the same with a larger model, on a GPU"),
    "bird_gpu": ("bird_gpu", "the same with a larger model, on a GPU"),
    "small": ("small", "Spider with a model made from scratch (--data SPIDER)"),
}
"""Scale and description by the name of a study."""
ANCHOR, FACTORIAL, STRATEGIES, BANK = "anchor", "factorial", "strategies", "bank"
"""The studies with a design and options of their own."""
_ANY = "reproduce"
"""The command of which `--scale` names the study."""


def parse(words: Sequence[str]) -> ReproduceConfig:
    """The settings of a study: defaults, then files of `--config`, then flags. Raises UserError for what cannot be
    meant."""
    study, *rest = words
    if study != _ANY and study not in STUDIES:
        raise UserError(f"no study is named {study!r}; there are: {', '.join([*STUDIES, _ANY])}")
    named = _parser(study).parse_args(
        [f"--{word[2:].replace('_', '-')}" if word[:2] == "--" else word for word in rest]
    )
    default = ReproduceConfig(scale=STUDIES[study][0]) if study in STUDIES else ReproduceConfig()
    for file in named.config:
        default = from_dict(ReproduceConfig, read_settings(Path(file)), f"the settings in {file}", default)
    flags = {name: value for name, value in vars(named).items() if name not in ("config", "resume")}
    settings = from_dict(ReproduceConfig, flags, "the flags", default)
    return settings


def _parser(study: str) -> Parser:
    parser = Parser(
        f"python -m experiments {study}",
        description=_overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--config", action="append", default=[], metavar="FILE", help="settings from a file")
    parser.add_argument("--resume", action="store_true", help="the same command always continues")
    docs = field_docs(ReproduceConfig)
    for item in dataclasses.fields(ReproduceConfig):
        kind: dict[str, Any] = {"type": type(item.default)}
        if isinstance(item.default, bool):
            kind = {"action": argparse.BooleanOptionalAction}
        elif isinstance(item.default, tuple):
            kind = {"nargs": "*", "type": int if item.name == "seeds" else str}
        parser.add_argument(f"--{item.name.replace('_', '-')}", help=docs[item.name].replace("%", "%%"), **kind)
    return parser


def _overview() -> str:
    lines = [f"  {name:<13} {text}" for name, (_, text) in STUDIES.items()]
    head = "usage: python -m experiments STUDY [settings]; the same command continues an interrupted study"
    lines.append(f"  {ANCHOR:<13} Countdown: where an anchor to the base model acts, and its direction")
    lines.append(f"  {FACTORIAL:<13} Countdown: choice of the problems and rehearsal, crossed (experiment D1)")
    lines.append(f"  {STRATEGIES:<13} Countdown with named strategies: when does rehearsal transfer? (experiment D2)")
    lines.append(f"  {BANK:<13} Countdown: a bank of every way that was found, against GRPO and k3 (experiment B2)")
    return "\n".join([head, "", *lines, f"  {_ANY:<13} the study that --scale names (tiny)"])


def run(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Exit status: 0 done; 1 a bug (traceback); 2 a mistake that the user can fix (one sentence); 129, 130
    and 143 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    show_messages()
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        sys.exit(0 if words else 2)
    with ending("experiments"):
        if words[0] == ANCHOR:
            from experiments.anchor.run import run as run_anchor

            return run_anchor(words[1:])
        if words[0] == FACTORIAL:
            from experiments.factorial.run import run as run_factorial

            return run_factorial(words[1:])
        if words[0] == STRATEGIES:
            from experiments.strategies.run import run as run_strategies

            return run_strategies(words[1:])
        if words[0] == BANK:
            from experiments.bank.run import run as run_bank

            return run_bank(words[1:])
        settings = parse(words)
        from experiments.run import reproduce  # loads matplotlib

        try:
            reproduce(settings)
        except OSError as error:
            if error.filename is None:
                raise
            raise UserError(f"cannot use {error.filename}: {error.strerror}") from error
