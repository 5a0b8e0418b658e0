"""Reports: from evaluations and training runs to tables, figures and one page that anybody can open."""

from collections.abc import Sequence
from pathlib import Path

from dph.errors import RunError, how_to_install, one_line, refused
from dph.extras import missing_of
from dph.process.places import check_no_run, check_place, own
from dph.process.progress import put, say
from dph.report.comparison import headline, tabulate
from dph.report.data import LAUNCH, OF_FIGURES, EvalRun, TrainRun, read_runs, unlike_rules
from dph.report.tables import as_markdown, print_table, tables, to_markdown
from dph.runs.files import check_replaced, write_atomically

MARK = "made by dph report"
"""A mark in every page and every report.md, so that a file of somebody else is not replaced."""
DRAWN_WITH = ("matplotlib", "plotly")
"""The libraries of the extra `report`. Without them a report has tables only."""


def report(runs: Sequence[Path], out: Path, *, base: str | None, title: str) -> Path:
    """Write a report of the runs in directories (`write_report`), and return the path of the page. Raises UserError for
    a directory that is missing, damaged, or not a run of `dph eval`, `dph verify` or `dph train`."""
    return write_report(*read_runs(list(dict.fromkeys(runs))), out, base=base, title=title)


def write_report(
    evals: Sequence[EvalRun], trains: Sequence[TrainRun], out: Path, *, base: str | None, title: str
) -> Path:
    """Write a report of runs, print its first table, and return the path of the page.

    The files are index.html, which stands alone and has charts and a browser of completions, report.md and
    figures/*.png. Without the extra `report`, only report.md is written and returned, and a line says so.

    Args:
        evals: evaluations. Those with one label count as seeds of one method.
        trains: training runs, whose metrics are drawn.
        out: the folder to write into.
        base: the label of the evaluation of the reference policy. If no run has it, the report says so, and has no keep
            and exploration rates.
        title: of the report.
    Raises:
        UserError: evaluations have different problems, or `out` holds a run or files of others.
    """
    comparison = tabulate(evals, base)
    written, links = tables(comparison, trains), []
    result = "; ".join(filter(None, [headline(comparison), unlike_rules(evals)]))
    files: dict[Path, str | bytes] = {}
    page = out / "report.md"
    if missing := missing_of(DRAWN_WITH):
        lack = "is" if len(missing) == 1 else "are"
        say(f"the report has tables only, because {' and '.join(missing)} {lack} missing: {how_to_install('report')}")
    else:
        from dph.report import plots
        from dph.report.page import page_data, render, settings_of

        page = out / "index.html"
        for name, (figure, description) in plots.figures(comparison, trains).items():
            files[out / "figures" / f"{name}.png"] = plots.to_png(figure)
            links.append(f"![{as_markdown(description)}](figures/{name}.png)")
        data = page_data(comparison, trains)
        files[page] = render(title, data, tables=written, settings=settings_of([*evals, *trains]), headline=result)
    text = "\n\n".join(
        [f"# {as_markdown(title)}", f"**{as_markdown(result)}**", *links[:1], *map(to_markdown, written), *links[1:]]
    )
    files[out / "report.md"] = f"{text.rstrip()}\n\n<!-- {MARK} -->\n"
    own(out)
    check_no_run(out, ("manifest.json", "scores.json", "metrics.jsonl", LAUNCH))
    for file in files:
        check_place(file)
    try:
        figures = [file for file in files if file.suffix == ".png"]
        check_replaced([out / "index.html", out / "report.md"], MARK, "dph report")
        check_replaced(figures, OF_FIGURES, "dph report")
        for file, content in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, content)
    except OSError as error:
        raise RunError(refused(f"cannot write the report to {out}", error)) from error
    put(one_line(result))
    print_table(written[0])
    return page
