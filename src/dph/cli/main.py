"""The command line: `dph STAGE [--preset NAME …] [--config FILE …] [--plugin MODULE …] [--resume] [settings …]`."""

import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import dph
from dph.cli.arguments import TASK, CommandLine, help_page, purpose, read_words
from dph.config import (
    STAGES,
    TrainConfig,
    code_of,
    every_setting,
    flatten,
    from_dict,
    is_settings_file,
    laid_over,
    merge_settings,
    only,
    read_tree,
    unusual,
)
from dph.config.checks import check_model, check_out
from dph.errors import (
    REMEDIES,
    RESUMED,
    DataError,
    Interrupted,
    RunError,
    SettingsError,
    SharedUserError,
    UserError,
    interrupted,
    is_out_of_memory,
    one_line,
    refused,
    unknown,
)
from dph.extras import require_training
from dph.process.interrupts import DIVIDED, LAUNCHED, PARENT, check_processes, is_first_process, when_parent_ends
from dph.process.memory import grow_segments, keep_few_kernels
from dph.process.places import check_no_run, own
from dph.process.progress import put, say, show, show_messages
from dph.runs.directory import RunDir, remove_new
from dph.runs.files import TEMPORARY
from dph.runs.tracking import load_tracker

_ELSEWHERE = {
    "eval": "dph.stages.evaluate:evaluate",
    "report": "dph.report.write:report",
    "verl": "dph.integrations.verl.launch:verl",
    "doctor": "dph.doctor:doctor",
}
COMMANDS = {name: _ELSEWHERE.get(name, f"dph.stages.{name}:{name}") for name in STAGES}
"""The function of each command. Its module is loaded only after the settings have been checked."""

_NEED_TASK = frozenset({"sft", "presample", "train", "verl", "eval", "verify", "audit"})
"""The commands that take the problems of a task."""

_MAKE_RUNS = frozenset({"sft", "presample", "train", "eval", "verify"})
"""The commands whose `out` is a run directory, which `RunDir.start` checks. The other commands write into no run
directory."""
_LOAD_MODELS = frozenset({"sft", "presample", "train", "eval", "audit", "interpolate", "demo", "check", "verl"})
"""The commands that load a model or its tokenizer, so that the extra `train` has to be installed."""
_LOOK_ONLY = frozenset({"check", "doctor"})
"""The commands that write nothing into `out`."""


def _check(command: str, config: Any, resume: bool) -> None:
    """Raise UserError for settings that are wrong, and for libraries that are missing, before torch is loaded."""
    if command in _LOAD_MODELS:
        require_training(f"dph {command}")
    if (out := getattr(config, "out", "")) and command not in _LOOK_ONLY:
        own(out)
        if command not in _MAKE_RUNS:
            check_no_run(Path(out))
    if command in ("sft", "presample", "train", "eval", "audit"):
        check_out(config.out)
    if command == "train":
        config.check_ready()
        if config.tracker != "none" and is_first_process():
            load_tracker(config.tracker)
    if command in ("check", "train"):
        for path in filter(None, (config.rehearsal.path, config.certify.set)):
            RunDir.open(Path(path), "presample")
    if command in ("check", "presample", "train", "eval", "verl") or (command == "sft" and config.model.path):
        check_model(config.model.path)
    if command == "init" and config.model:
        check_model(config.model, "--model")
    if command == "sft" and config.data and not Path(config.data).exists():
        raise DataError(f"there is no file {Path(config.data).absolute()}; correct --data")
    if command == "verify" and resume and not config.out:
        raise SettingsError("--resume needs the directory of the run; add --out DIRECTORY")
    if command == "passk" and not (config.files or config.example):
        needs = "dph passk needs judged samples: dph passk BEFORE [AFTER …]"
        raise SettingsError(f"{needs}; dph passk --example shows it on counts of two public models")
    if command == "audit" and not (config.model.path and config.after):
        raise SettingsError("dph audit needs two models: dph audit BEFORE AFTER --data FOLDER --out DIRECTORY")
    if command == "report" and not (config.runs and config.out):
        raise SettingsError("dph report needs runs and a directory to write: dph report RUN … --out DIRECTORY")


def _call(command: str, config: Any, resume: bool) -> None:
    """Run a command, after all checks that need no torch."""
    _check(command, config, resume)
    if is_first_process():
        for sentence in unusual(config):
            say(sentence)
    module, _, name = COMMANDS[command].partition(":")
    function = getattr(import_module(module), name)
    if command == "report":
        function([Path(run) for run in config.runs], Path(config.out), base=config.base, title=config.title)
    elif command in RESUMED:
        function(config, resume=resume)
    else:
        function(config)
    if command in DIVIDED:
        from dph.process.distributed import World

        World.join().leave()


def parse(stage: str, arguments: Sequence[str]) -> tuple[Any, CommandLine]:
    """The settings of a stage from a command line. Flags override files, and files override presets. With --help, the
    help page is printed and the process ends.

    Raises UserError for words that cannot be meant, and for code that files name but no flag names.
    """
    line = read_words(stage, arguments)
    merged = line.over(merge_settings(stage, line.presets, line.files))
    if line.help:
        put(help_page(stage, from_dict(STAGES[stage], merged)), end="")
        sys.exit(0)
    recorded = _recorded(stage, line)
    given = read_tree(STAGES[stage], line.settings)
    settings = line.finish(from_dict(STAGES[stage], laid_over(STAGES[stage], recorded or merged, given)))
    if line.plugins and hasattr(settings, "plugins"):  # a run records plug-ins with its settings
        settings = replace(settings, plugins=tuple(dict.fromkeys([*settings.plugins, *line.plugins])))
    named = [*filter(is_settings_file, line.presets), *map(str, line.files)]
    files = [str(Path(line.settings["out"]) / "config.toml")] if recorded else named
    line.permitted.check(code_of(settings), " or ".join(files))
    if recorded is None and is_first_process():
        _say_what_was_not_named(line, {*flatten(merged), *flatten(line.settings)}, settings)
    return settings, line


def _recorded(stage: str, line: CommandLine) -> dict[str, Any] | None:
    """The settings of the run that `--resume --out DIRECTORY` continues, as nested dictionaries.

    None if the run is new, or if the command line names presets, files or a task, which would set the settings anew.
    Raises UserError if there is no run to continue and the line names no settings of a new one.
    """
    out = Path(line.settings.get("out", ""))
    if not line.resume or line.presets or line.files or line.task or line.options:
        return None
    if not RunDir.begun(out):
        if line.settings.keys() != {"out"}:
            return None
        if not (out / "manifest.json").exists():
            raise RunError(f"there is no run in {out} to resume; correct --out, or name the settings of a new run")
    return read_tree(STAGES[stage], RunDir.open(out, stage).settings(), f"the settings of {out}")


def _say_what_was_not_named(line: CommandLine, named: set[str], settings: Any) -> None:
    """Say which task or method the defaults choose, because the user may have meant to name another one. Raises
    SettingsError if data are named without the task that reads them."""
    if line.stage == "verify" and "root" not in line.options:
        return  # --gold and --databases give problems without a task
    if line.stage in _NEED_TASK and "task.name" not in named and not getattr(settings, "data", ""):
        if line.options:
            flag = next(flag for flag, (name, *_) in TASK.items() if name.removeprefix("options.") in line.options)
            raise SettingsError(f"no task was named; {flag} needs one: --task records reads your own problems")
        say(f"no --task was named: the problems come from the embedded world {settings.task.name}")
    if line.stage in ("train", "verl") and settings.method == TrainConfig.method and not settings.rehearsal.rows:
        say("no method was named: GRPO without rehearsal; --preset dph_js, or another method, names one")


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {purpose(name)}" for name in COMMANDS]
    head = f"dph {dph.__version__}: reinforcement learning with verifiable rewards that keeps diversity\n"
    return "\n".join([head, "usage: dph COMMAND [settings]; `dph COMMAND --help` lists them", "", *lines])


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point. arguments: the words after `dph`; None takes those of this process.

    Exit status: 0 done; 1 a bug (traceback); 2 a mistake that the user can fix (one sentence); 3 `dph passk` found more
    lost problems than allowed; 129, 130 and 143 interrupted by SIGHUP, SIGINT and SIGTERM.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    show_messages()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack some characters
    with ending("dph", *words[:1]):
        if not words or words[0] in ("-h", "--help"):
            put(_overview())
            sys.exit(0 if words else 2)
        if words[0] == "--version":
            return put(dph.__version__)
        keep_few_kernels()
        parent = os.environ.pop(PARENT, "")
        if parent or LAUNCHED in os.environ:
            when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGTERM), int(parent or 0))
        _run(words[0], words[1:])


def _run(command: str, arguments: Sequence[str]) -> None:
    check_processes(command)
    if command not in COMMANDS:
        raise SettingsError(unknown("command", command, [*COMMANDS, "--help", "--version"]))
    settings, line = parse(command, arguments)
    with only(line.permitted):
        _prepare_and_call(command, settings, line)


def _prepare_and_call(command: str, settings: Any, line: CommandLine) -> None:
    """Load the plug-ins, and run a command. Raises RunError if the run directory disappears meanwhile."""
    if getattr(getattr(settings, "sampler", None), "engine", "hf") == "hf":  # vLLM refuses such memory in some uses
        grow_segments()
    if plugins := getattr(settings, "plugins", line.plugins):
        from dph.build import load_plugin

        for plugin in plugins:
            load_plugin(plugin)
    if getattr(getattr(settings, "verifier", None), "policy", "typed") != "typed":
        from dph.verifiers.math.policy import check_policy

        check_policy(settings.verifier.policy)
    try:
        _call(command, settings, line.resume)
    except FileNotFoundError as error:
        out = Path(getattr(settings, "out", "") or os.devnull)
        file = _file_of(error)
        if out.joinpath("manifest.json").exists() or not Path(file).is_relative_to(out):
            raise
        gone = f"the run directory {out} was removed or renamed while this command used it ({file} is missing)"
        remedy = "start again with a new --out, from the model of a checkpoint if one was saved"
        raise RunError(f"{gone}; {remedy}") from error


@contextmanager
def ending(program: str, command: str = "") -> Iterator[None]:
    """Context that ends the process with one sentence after a mistake that the user can fix, and after a signal (see
    `main`).

    program: the name with which the sentence begins. command: the command of `dph`, which decides the remedy.
    """
    try:
        with _sentences(command):
            yield
    except UserError as error:
        remove_new()
        if not isinstance(error, SharedUserError) or is_first_process():
            show(f"{program}: {one_line(str(error))}")
        sys.exit(2)
    except KeyboardInterrupt as error:
        stop = error if isinstance(error, Interrupted) else Interrupted(signal.SIGINT)
        if is_first_process():
            show(f"{program}: {one_line(str(stop) or interrupted(command))}")
        sys.exit(128 + stop.number)


@contextmanager
def _sentences(command: str) -> Iterator[None]:
    """Context in which exhausted memory, and a file that cannot be written, are raised as UserError. Standard output,
    which is flushed at the end, counts as such a file."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except (MemoryError, RuntimeError, ImportError) as error:
        if is_out_of_memory(error):
            raise UserError(f"out of memory; {_less_memory(command)}") from error
        raise
    except OSError as error:
        if error.errno in REMEDIES and not isinstance(error, FileNotFoundError):
            raise UserError(refused(f"cannot write {_file_of(error) or 'a file of the run'}", error)) from error
        raise


def _less_memory(command: str) -> str:
    """The ways to let a command take less memory, as far as it has the settings for them."""
    names = {setting.name for setting in every_setting(STAGES[command]())} if command in STAGES else set()
    ways = [
        ("optim.tokens_per_microbatch", "lower --optim.tokens-per-microbatch"),
        ("tokens_per_microbatch", "lower --tokens-per-microbatch"),
        ("sampler.rows", "lower --sampler.rows"),
        ("model.gradient_checkpointing", "set --model.gradient-checkpointing"),
        ("verifier.workers", "lower --verifier.workers"),
    ]
    lower = [way for name, way in ways if name in names] or ["name smaller files"]
    again = "; --resume continues from what is saved" if command in RESUMED else ""
    return f"{', or '.join(lower)}; if `ulimit -v` limits memory, raise that{again}"


def _file_of(error: OSError) -> str:
    name = error.filename2 or error.filename  # of two names, the second is the place that is written
    return TEMPORARY.sub(r"\1", os.fsdecode(name)) if isinstance(name, str | bytes) else ""
