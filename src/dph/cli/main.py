"""The command line: `dph STAGE [--preset NAME …] [--config FILE …] [--plugin MODULE …] [--resume] [settings …]`."""

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dph
from dph.cli.arguments import STAGES_WITH_SHORTCUTS, CommandLine, read_words
from dph.cli.checks import check_before_loading
from dph.cli.flags import parse_flags
from dph.config import STAGES, check_bounds, from_dict, merge_settings, preset_names
from dph.errors import Interrupted, SharedUserError, UserError, is_out_of_memory, one_line
from dph.process.launched import require_one_process
from dph.process.memory import keep_few_kernels
from dph.process.orphans import LAUNCHED, PARENT, when_parent_ends
from dph.process.progress import show, show_messages
from dph.runs.code import check_named, without_code
from dph.runs.directory import RunDir


def _sft(config: Any, resume: bool) -> object:
    from dph.process.distributed import World
    from dph.stages.sft import sft

    path = sft(config, resume=resume)
    World.join().leave()
    return path


def _presample(config: Any, resume: bool) -> object:
    if config.check:
        from dph.stages.presample_check import check_presample

        return check_presample(config)
    from dph.stages.presample import presample

    return presample(config, resume=resume)


def _train(config: Any, resume: bool) -> object:
    from dph.process.distributed import World
    from dph.stages.train import train

    path = train(config, resume=resume)
    World.join().leave()
    return path


def _verl(config: Any, resume: bool) -> object:
    from dph.integrations.verl.launch import verl

    return verl(config)


def _eval(config: Any, resume: bool) -> object:
    from dph.stages.evaluate import evaluate

    return evaluate(config, resume=resume)


def _verify(config: Any, resume: bool) -> object:
    from dph.stages.verify import verify

    return verify(config, resume=resume)


def _interpolate(config: Any, resume: bool) -> object:
    from dph.stages.interpolate import interpolate

    return interpolate(config)


def _push(config: Any, resume: bool) -> object:
    from dph.stages.push import push

    return push(config)


def _report(config: Any, resume: bool) -> object:
    from dph.report.write import report

    runs = [Path(run) for run in config.runs]
    if not runs or not config.out:
        raise UserError("dph report needs runs and a directory to write: dph report RUN … --out DIRECTORY")
    return report(runs, Path(config.out), base=config.base, title=config.title)


def _demo(config: Any, resume: bool) -> object:
    from dph.stages.demo import demo

    return demo(config)


def _doctor(config: Any, resume: bool) -> object:
    from dph.doctor import doctor

    return doctor(config)


COMMANDS: dict[str, tuple[str, Callable[[Any, bool], object]]] = {
    "demo": (
        "base model, GRPO, DPH-JS and a report in the embedded world, in minutes, without network or GPU",
        _demo,
    ),
    "sft": ("supervised training on prompt/response rows", _sft),
    "presample": ("split prompts by what the reference policy masters; store its correct responses", _presample),
    "train": ("reinforcement learning: DPH-RL and its baselines, by --preset", _train),
    "eval": ("greedy accuracy, pass@k and diversity on held-out problems", _eval),
    "verify": ("scores of a file of predictions by the official rules, with every verdict", _verify),
    "interpolate": ("a model between the one that a run began with and the one that it trained", _interpolate),
    "push": ("publish the model of a run on a hub, with a card of how it was made and what it scores", _push),
    "report": ("table, figures and a page from several runs", _report),
    "verl": ("write the launch of a training run on a cluster, through verl", _verl),
    "doctor": ("check the machine and the installation, and say how to fix what does not work", _doctor),
}

_COMMON = """Common flags, before or between the settings:
  --preset NAME   settings by name, or by the path of a TOML or YAML file; may be repeated, later ones override
  --config FILE   settings from a TOML or YAML file; they override presets, and flags override both
  --plugin FILE   import a Python file or module that registers tasks, verifiers, losses … (`plugins` in a file)
  --resume        continue an interrupted run in the same --out directory

Presets: """

_SHORT = """

Short flags for settings of the task and the verifier:
  --task NAME        a benchmark (spider, bird, math500 …) with its split and official rule, or another task
  --data PATH        where its data are; also --databases, --suite, --gold PATH, --subset, --skip-missing
  --rule, --policy   how SQL results and mathematical answers are compared; also --workers, --timeout, --keep-distinct
"""


_FIRST = {"report": "--runs", "interpolate": "--run"}
"""What the words before any flag are: dph report RUN …, dph interpolate RUN."""


def parse(stage: str, arguments: Sequence[str]) -> tuple[Any, CommandLine]:
    """The settings of a stage from a command line: preset < file < flags. Raises UserError for what cannot be meant."""
    if stage in _FIRST and arguments and not arguments[0].startswith("-"):
        arguments = [_FIRST[stage], *arguments]
    if stage == "push":  # dph push RUN REPO …
        words = list(arguments)
        count = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
        arguments = [part for pair in zip(("--run", "--repo"), words[:count], strict=False) for part in pair]
        arguments += words[min(count, 2) :]
    line = read_words(stage, arguments)
    default = from_dict(STAGES[stage], line.over(merge_settings(stage, line.presets, line.files)))
    recorded: dict[str, Any] = {}
    if line.checked:
        recorded = RunDir.open(Path(line.checked), stage).settings()
        from_dict(STAGES[stage], recorded, f"the settings of {line.checked}")  # that they can be read at all
        default = from_dict(STAGES[stage], without_code(recorded), default=default)
    description = f"{COMMANDS[stage][0][0].upper()}{COMMANDS[stage][0][1:]}.\n\n{_COMMON}{', '.join(preset_names())}"
    if stage in STAGES_WITH_SHORTCUTS:
        description += _SHORT
    settings = line.finish(parse_flags(f"dph {stage}", default, line.rest, description))
    if line.plugins and hasattr(settings, "plugins"):  # a run records them with its settings
        settings = replace(settings, plugins=tuple(dict.fromkeys([*settings.plugins, *line.plugins])))
    if line.checked:
        loaded = {key: value for key, value in recorded.items() if key != "model" or settings.check_logprobs}
        check_named(Path(line.checked), loaded, settings)
    check_bounds(settings)
    return settings, line


def _overview() -> str:
    width = max(map(len, COMMANDS))
    described = {name: text for name, (text, _) in COMMANDS.items()}
    lines = [f"  {name:<{width}}  {text}" for name, text in described.items()]
    head = f"dph {dph.__version__}: reinforcement learning with verifiable rewards that keeps diversity\n"
    return "\n".join([head, "usage: dph COMMAND [settings]; `dph COMMAND --help` lists them", "", *lines])


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Exit status: 0 done; 1 a bug (traceback); 2 a mistake that the user can fix (one sentence); 129, 130
    and 143 interrupted by SIGHUP, SIGINT and SIGTERM."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    show_messages()
    try:
        with _sentences():
            if not words or words[0] in ("-h", "--help"):
                print(_overview())
                sys.exit(0 if words else 2)
            if words[0] == "--version":
                return print(dph.__version__)
            keep_few_kernels()
            parent = os.environ.pop(PARENT, "")
            if parent or LAUNCHED in os.environ:
                when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGTERM), int(parent or 0))
            _run(words[0], words[1:])
    except UserError as error:
        if not isinstance(error, SharedUserError) or os.environ.get("RANK", "0") == "0":
            _complain(str(error))
        sys.exit(2)
    except KeyboardInterrupt as error:
        stop = error if isinstance(error, Interrupted) else Interrupted(signal.SIGINT)
        _complain(str(stop))
        sys.exit(128 + stop.number)


def _run(command: str, arguments: Sequence[str]) -> None:
    if command not in ("sft", "train"):
        require_one_process(command)
    if command not in COMMANDS:
        raise UserError(f"no command is named {command!r}; known are: {', '.join(COMMANDS)}")
    settings, line = parse(command, arguments)
    if plugins := getattr(settings, "plugins", line.plugins):
        from dph.build import load_plugin

        for plugin in plugins:
            load_plugin(plugin)
    check_before_loading(command, settings)
    try:
        COMMANDS[command][1](settings, line.resume)
    except FileNotFoundError as error:
        out = Path(getattr(settings, "out", "") or os.devnull)
        file = _file_of(error)
        if out.joinpath("manifest.json").exists() or not Path(file).is_relative_to(out):
            raise
        raise UserError(
            f"the run directory {out} was removed or renamed while this command used it ({file} is missing); start "
            "again with a new --out, from the model of a checkpoint if one was saved"
        ) from error


@contextmanager
def _sentences() -> Iterator[None]:
    """Raises UserError for exhausted memory and for what cannot be written, what the block prints included."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except (MemoryError, RuntimeError, ImportError) as error:
        if is_out_of_memory(error):
            raise UserError(
                "out of memory; lower --optim.tokens-per-microbatch (training) or --sampler.rows (sampling), or set "
                "--model.gradient-checkpointing; if `ulimit -v` limits memory, raise that; --resume continues from "
                "what is saved"
            ) from error
        raise
    except OSError as error:
        if error.errno in _UNUSABLE:
            raise UserError(f"cannot write {_file_of(error) or 'a file of the run'}: {error.strerror}") from error
        raise


_UNUSABLE = {
    *(errno.EACCES, errno.ENOSPC, errno.EROFS, errno.EFBIG, errno.EDQUOT, errno.EIO, errno.ESTALE),
    *(errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP),
}
"""What a path that a user named, or a full or failing disk, brings about; other errors of the system are bugs."""


def _file_of(error: OSError) -> str:
    return os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""


def _complain(text: str) -> None:
    show(f"dph: {one_line(text)}")
