"""Reports: from evaluations (and training runs) to tables, figures and one page that anybody can open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dph.errors import UserError
from dph.process.progress import say
from dph.report.comparison import compare
from dph.report.data import EvalRun, TrainRun, read_runs
from dph.report.tables import Table, as_markdown, print_table, tables, to_markdown
from dph.runs.files import write_atomically

if TYPE_CHECKING:  # it needs the extra `report`
    from dph.report.page import Image

DRAWN_WITH = ("matplotlib", "plotly")
"""Libraries of the extra `report`; without them a report has its tables only."""


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
    """index.html, or report.md if the extra `report` is not installed."""
    tables: Sequence[Table]
    """The report's own tables, the one with all metrics first."""


def report(runs: Sequence[Path], out: Path, *, base: str | None, title: str) -> Path:
    """Write a report of run directories and print its first table; returns `Report.page`. See `write_report`.

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

    Writes index.html (self-contained, with charts and a browser of completions), report.md and figures/*.png; without
    the extra `report` only report.md, and says so. Evaluations with one label count as seeds of one method. `base` is
    the label of the reference policy's evaluation; if no run has it, keep and exploration rates are left out and the
    report says so.

    Raises UserError for evaluations on different problems, and when `out` cannot be written.
    """
    extra = extra or Extra()
    comparison = compare(evals, base)
    written, links = tables(comparison, trains), []
    files: dict[Path, str | bytes] = {}
    page = out / "report.md"
    if missing := [name for name in DRAWN_WITH if find_spec(name) is None]:
        say(f"the report has tables only, because {' and '.join(missing)} is missing: pip install 'dph-rl[report]'")
    else:
        from dph.report import plots
        from dph.report.page import Image, page_data, render

        page = out / "index.html"
        drawn = plots.figures(comparison, trains)
        images = {name: Image(plots.to_png(figure), text) for name, (figure, text) in drawn.items()}
        files = {out / "figures" / f"{name}.png": image.png for name, image in images.items()}
        links = [f"![{as_markdown(image.description)}](figures/{name}.png)" for name, image in images.items()]
        files[page] = render(
            title,
            page_data(comparison, trains, extra.trains),
            tables=[*extra.tables, *written],
            images=extra.images,
            settings=[(f"{run.label}: {run.path}", _settings(run.path)) for run in [*evals, *trains]],
        )
    text = "\n\n".join([f"# {as_markdown(title)}", *links[:1], *map(to_markdown, written), *links[1:]])
    files[out / "report.md"] = text.rstrip() + "\n"
    try:
        for file, content in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, content)
    except OSError as error:
        raise UserError(f"cannot write the report to {out}: {error.strerror or error}") from error
    return Report(page, written)


def _settings(run: Path) -> str:
    file = run / "config.toml"
    return file.read_text(encoding="utf-8", errors="replace") if file.exists() else "There is no config.toml."
