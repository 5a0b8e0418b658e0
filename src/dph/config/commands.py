"""Settings of the commands that take their models, runs and files as they are: frozen dataclasses without a model's
settings. `dph.config.stages` has those of the stages that load a model, and the table of all commands."""

from dataclasses import dataclass, field
from typing import Annotated

from dph.config.components import Reading
from dph.config.learning import CertifySetConfig
from dph.config.settings import Bounds, Code, Positive, PositiveInt, Seed, Settings, Share, Usual
from dph.config.train import Plugins


@dataclass(frozen=True)
class InitConfig(Settings):
    """`dph init`: make problems and settings of your own questions: dph init sql DATABASE FILE, dph init maths FILE."""

    kind: str = ""
    """sql (questions with gold queries on one SQLite database) or maths (problems with their answers)."""
    files: tuple[str, ...] = ()
    """The database, for SQL, and the file of questions: CSV, JSONL, JSON or Parquet."""
    columns: tuple[str, ...] = ()
    """prompt=COLUMN, answer=COLUMN and id=COLUMN, if the columns do not have usual names."""
    model: str = ""
    """Model of the settings; empty: Qwen/Qwen2.5-0.5B-Instruct."""
    small: bool = False
    """Settings that end in minutes on a laptop, with a small model."""
    test_share: Share = 0.2
    """Share of the problems that are kept for tests, chosen by their ids."""
    out: str = ""
    """New folder for problems and settings, which can be moved."""


@dataclass(frozen=True)
class InterpolateConfig(Settings):
    """`dph interpolate`: a model between the one that a run began with and the one that it trained."""

    run: str = ""
    """Run directory of `dph train` or `dph sft`, a checkpoint in it, or the folder of any trained model."""
    weight: Annotated[float, Bounds(-1, "between -1 and 3", 3)] = 0.5
    """Share of the trained weights; 0 is the initial model, 1 the trained one, and more goes beyond it."""
    initial: str = ""
    """Model to interpolate from; empty: the one that the run began with."""
    out: str = ""
    """New folder for the model."""
    certify: CertifySetConfig = field(default_factory=CertifySetConfig)
    """With a set, `weight` is the furthest share that is certified."""
    shares: PositiveInt = 10
    """With a certification set: shares 1/shares, 2/shares, … up to 1 are tested, until one fails."""
    trust_remote_code: Annotated[bool, Code("--trust-remote-code")] = False
    """Allow a hub model to run code of its own."""


@dataclass(frozen=True)
class ReportConfig(Settings):
    """`dph report`: table, figures and a page from several runs."""

    runs: tuple[str, ...] = ()
    """Run directories of `dph eval` or `dph verify` (and, for curves, of `dph train`, or launches of `dph verl`)."""
    out: str = ""
    """Directory to write."""
    base: str = "base"
    """Label of the reference policy's evaluation, for keep and exploration rates."""
    title: str = "DPH-RL report"
    """Heading of the page."""


@dataclass(frozen=True)
class PasskConfig(Reading):
    """`dph passk`: pass@k of judged samples of any harness with intervals, and which problems a training lost."""

    files: tuple[str, ...] = ()
    """Judged samples, as files or folders: BEFORE, then each AFTER; with `after`, the training runs of BEFORE."""
    after: tuple[str, ...] = ()
    """The training runs (seeds) of AFTER, one file or folder each; intervals are then over runs and problems."""
    k: tuple[int, ...] = ()
    """The k of pass@k and maj@k; empty: 1, 2, 4 … and the number of samples."""
    fail_if_lost: Share = 1.0
    """Exit status 3 if more than this share of the problems that BEFORE solves were lost, beyond what chance alone
    loses; among all samples, whatever `k` is."""
    json: bool = False
    """Print everything as JSON, with the versions, the settings and the SHA-256 of every file."""
    html: str = ""
    """Page to write, self-contained."""
    table: str = ""
    """Table to write: a .md file for a model card, or a .yaml file for the folder .eval_results of a model on the
    hub."""
    benchmark: str = ""
    """With a .yaml table: the dataset on the hub and its task that the problems are of, as openai/gsm8k:gsm8k."""
    example: bool = False
    """Compare the counts of a public pair of models with 1.5 billion parameters, which are in the package."""


@dataclass(frozen=True)
class TrialConfig(Settings):
    """`dph judge`: try any reward function on answers of known truth: what it pays wrongly, and what it refuses."""

    function: Annotated[str, Code("--function")] = ""
    """FILE.py:NAME of a reward function in the form of TRL, verl, OpenRLHF or this package; empty: our own judge."""
    math: bool = False
    """Try it on answers in mathematics, which is the default."""
    sql: bool = False
    """Try it on SQL queries over a small database."""
    template: str = ""
    """How a response states its answer, with {answer} for it; empty: the usual way that serves the function best."""
    columns: dict[str, str] = field(default_factory=dict)
    """Further arguments that the function is given by name."""
    every: PositiveInt = 1
    """Take every so many-th answer only, for a judge that is slow."""
    timeout: Annotated[Positive, Usual(0.01, 3600)] = 5.0
    """Seconds that one answer may take to be judged; pauses and load do not count."""
    workers: Annotated[PositiveInt, Usual(high=1024)] = 1
    """Processes in which the function is called."""
    json: bool = False
    """Print everything as JSON, with every answer that was judged wrongly."""


@dataclass(frozen=True)
class DemoConfig(Settings):
    """`dph demo`: base model, GRPO, DPH-JS and a report on Countdown, in minutes, without network or GPU."""

    out: str = "runs/demo"
    """Directory for all runs of the demo."""
    world: str = "countdown"
    """Preset of the task, which must have demonstrations: the embedded world, sums that reach a target, or a file such
    as experiments/minisql/minisql.toml."""
    seed: Seed = 0
    """Seed of everything but the world."""
    methods: tuple[str, ...] = ("grpo", "dph_js")
    """Method presets to train and compare: names, or paths of your own TOML files."""
    smoke: bool = False
    """A few steps only, to see that everything works; its numbers mean nothing."""
    jobs: PositiveInt = 2
    """Runs side by side, one thread each."""
    plugins: Plugins = ()
    """Python files or modules that the world or a method needs, for every run; --plugin adds one."""


@dataclass(frozen=True)
class DoctorConfig(Settings):
    """`dph doctor`: check the machine and the installation, or say which of five failures a run of training shows."""

    run: str = ""
    """What a trainer logged: a folder with TRL's trainer_state.json or completions, verl's file logger or rollouts, or
    a run of dph train; empty: the machine and the installation are checked."""
    out: str = "runs"
    """Directory for runs, whose write access and free disk space are checked."""
    device: str = "auto"
    """Device of the smoke run, as in `model.device`."""
    smoke: bool = True
    """Also run every stage at the smallest scale."""
    json: bool = False
    """Print the findings as JSON."""
