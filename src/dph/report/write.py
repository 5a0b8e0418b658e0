"""Reports: from evaluations (and training runs) to tables, figures and one page that anybody can open."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dph.errors import UserError
from dph.report import plots
from dph.report.comparison import compare
from dph.report.data import EvalRun, TrainRun, read_runs
from dph.report.figures import figures
from dph.report.page import Image, render
from dph.report.page_data import page_data
from dph.report.table import Table, as_markdown, print_table, to_markdown
from dph.report.tables import tables
from dph.runs.files import write_atomically

_PAGE, _MARKDOWN = "index.html", "report.md"


@dataclass(frozen=True, slots=True)
class Extra:
    """What a report's page shows besides the tables and figures of its own runs."""

    tables: Sequence[Table] = ()
    """Shown before the report's own tables."""
    images: Sequence[Image] = ()
    trains: Sequence[TrainRun] = ()
    """Further training runs, in the training chart only and hidden until their names are clicked."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report that was written."""

    page: Path
    tables: Sequence[Table]
    """The report's own tables, the one with all metrics first."""


def report(runs: Sequence[Path], out: Path, *, base: str | None, title: str) -> Path:
    """Write a report of run directories and print its first table; returns the page. See `write_report`.

    Raises UserError for a directory that is missing, damaged or not a run of `dph eval` or `dph train`.
    """
    written = write_report(*read_runs(list(dict.fromkeys(runs))), out, base=base, title=title)
    print_table(written.tables[0])
    return written.page


def write_report(
    evals: Sequence[EvalRun],
    trains: Sequence[TrainRun],
    out: Path,
    *,
    base: str | None,
    title: str,
    extra: Extra | None = None,
) -> Report:
    """Write a report of runs into `out`.

    Writes index.html (self-contained, with charts and a browser of completions), report.md and figures/*.png.
    Evaluations with one label count as seeds of one method. `base` is the label of the reference policy's evaluation;
    where no run has it, keep and exploration rates are left out and the report says so.

    Raises UserError for evaluations on different problems, and when `out` cannot be written.
    """
    extra = extra or Extra()
    comparison = compare(evals, base)
    found = tables(comparison, trains)
    images = {name: Image(plots.to_png(figure), text) for name, (figure, text) in figures(comparison, trains).items()}
    page = render(
        title,
        page_data(comparison, trains, extra.trains),
        tables=[*extra.tables, *found],
        images=extra.images,
        settings=[(f"{run.label}: {run.path}", _settings(run.path)) for run in [*evals, *trains]],
    )
    links = [f"![{as_markdown(image.description)}](figures/{name}.png)" for name, image in images.items()]
    text = "\n\n".join([f"# {as_markdown(title)}", *links[:1], *map(to_markdown, found), *links[1:]])
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
        for name, image in images.items():
            write_atomically(out / "figures" / f"{name}.png", image.png)
        write_atomically(out / _MARKDOWN, text.rstrip() + "\n")
        write_atomically(out / _PAGE, page)
    except OSError as error:
        raise UserError(f"cannot write the report to {out}: {error.strerror or error}") from error
    return Report(out / _PAGE, found)


def _settings(run: Path) -> str:
    file = run / "config.toml"
    return file.read_text(encoding="utf-8", errors="replace") if file.exists() else "There is no config.toml."
