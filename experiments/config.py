"""Settings of the experiments' command."""

from dataclasses import dataclass

from dph.config.settings import PositiveInt, Settings


@dataclass(frozen=True, slots=True)
class ReproduceConfig(Settings):
    """The paper's experiments with equal budgets, several seeds, tables and figures."""

    scale: str = "tiny"
    """Grid of experiments: tiny (the SQL world), bench (every method at its own settings in several SQL worlds),
    small (real Spider, a model made from scratch), llm and llm_embedded (a language model on Spider, or in the SQL
    world), llm_medium and llm_short (llm in fewer hours), bird and maths (BIRD's databases at hand, word problems;
    bird_gpu and maths_gpu with a larger model), orthogonal (additions to GRPO), or full (the paper's models and data:
    launches for a cluster are written, nothing is run)."""
    methods: tuple[str, ...] = ("core",)
    """Methods by name or tier: core, wide (the rest of the paper), more (beyond it), all; for full tables
    (table-1, figure-3), recipes and arms; for bench names and your own preset files (core: all of its methods)."""
    seeds: tuple[int, ...] = ()
    """Training seeds of every method; empty: those of the grid."""
    out: str = ""
    """Directory of all runs; empty: runs/reproduce-SCALE."""
    data: str = ""
    """Folder of the data set (scales small and llm: Spider's; bird and full: a folder with one for each data set)."""
    smoke: bool = False
    """A few steps only, to see that everything works; its numbers mean nothing."""
    dry_run: bool = False
    """Scale full: verl's own configuration has to accept every launch. Needs verl, no GPU."""
    report_only: bool = False
    """Run nothing: tables of what is finished, and figures of every scale but full."""
    counts: str = ""
    """Folder with the counts of finished runs (experiments/counts, or report/counts of another reproduction): these
    runs are not made again, and are in the tables and figures. Every scale but full."""
    jobs: PositiveInt = 2
    """Runs side by side, one thread each."""
