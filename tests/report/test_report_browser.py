"""The report in a real browser: it opens without a console error, shows its charts, and can be clicked through."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dph.report.tables import DIVERSITY
from dph.report.write import report
from report_support import ATTACK, write_eval, write_train

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine (set CHROMIUM to its path)")

QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
SHAPES = {"wide": (1400, 900), "tablet": (800, 1100), "phone": (390, 844)}
LOOKS = [("wide", "light"), ("wide", "dark"), ("tablet", "light"), ("phone", "light"), ("phone", "dark")]
PROBLEMS = 70


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    runs = [
        write_eval(folder / "base", "base", [4, 2, 1, 0] * 8),
        write_eval(folder / "grpo", "GRPO", [4, 4, 0, 0] * 8, text=ATTACK, model=folder / "train" / "model"),
        write_eval(folder / "js", "DPH-JS", [4, 3, 3, 0] * 8),
        write_train(folder / "train", "grpo", [0.25, 0.5, 0.75]),
    ]
    longer = write_train(folder / "longer", "grpo, longer", [0.5, 0.25])
    return report([*runs, longer], folder / "out", base="base", title="A report").as_uri()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report with many columns, problems, completions and styles."""
    folder = tmp_path_factory.mktemp("large")
    measures = {name: {"mean": 1.0, "low": 0.875, "high": 1.125} for name in DIVERSITY}
    shares = {"nested": 0.25, "cte": 0.25, "other": 0.25, "plan": 0.125, "stepwise": 0.125}
    runs = [
        write_eval(
            *(folder / label, label, [i % 5 for i in range(PROBLEMS)]),
            samples=12,
            wrong=12,
            metrics=measures,
            shares=shares,
        )
        for label in ("base", "GRPO", "D_exp only, with a larger learning rate and more", "DPH-F", "DPH-JS")
    ]
    answers = {"p0": ["wrong", "wrong", ATTACK], "p1": ["wrong", "right", "wrong"]}
    runs.append(write_train(folder / "train", "grpo", [0.25, 0.5, 0.75], answers))
    return report(runs, folder / "out", base="base", title="A report").as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as engine:
        opened = engine.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield opened
        opened.close()


@contextmanager
def opened(browser: Any, address: str, shape: str, scheme: str) -> Iterator[Any]:
    """The open page; whatever it complains about, loads from elsewhere or asks the user fails the test."""
    width, height = SHAPES[shape]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page, complaints = context.new_page(), []
    page.on("console", lambda message: complaints.append(message.text) if message.type != "log" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on(
        "request",
        lambda asked: None if asked.url.startswith(("file:", "data:", "blob:")) else complaints.append(asked.url),
    )
    page.goto(address)
    page.wait_for_selector("body[data-ready=yes]", timeout=60_000)
    yield page
    context.close()
    assert complaints == []


@pytest.fixture(params=LOOKS)
def page(request: pytest.FixtureRequest, browser: Any, address: str) -> Iterator[Any]:
    with opened(browser, address, *request.param) as page:
        yield page


@pytest.fixture(scope="module", params=LOOKS)
def large_page(request: pytest.FixtureRequest, browser: Any, large: str) -> Iterator[Any]:
    """The large report, opened once for all tests of a look: each sets the controls that it needs."""
    with opened(browser, large, *request.param) as page:
        yield page


def test_charts_are_drawn_and_follow_their_controls(page: Any) -> None:
    assert page.locator("#pass-chart .trace").count() == 6  # a line and a band for each of three labels
    page.select_option("#pass-split", "ood")
    assert page.locator("#pass-chart .legendtext").all_text_contents() == ["base", "GRPO", "DPH-JS"]
    page.select_option("#training-metric", "reward")
    assert page.locator("#training-chart .ytitle").text_content() == "reward"
    page.check("#training-each")
    assert page.locator("#training-chart .trace").count() == 2
    page.locator("#training-chart .legendtoggle").nth(1).click()
    page.locator("#training-chart .trace").nth(1).wait_for(state="detached")
    assert page.locator("#styles-chart .point").count() == 6  # two styles of three labels


def test_completions_of_two_methods_stand_side_by_side(page: Any) -> None:
    page.select_option("#left", "base")
    page.select_option("#right", "GRPO")
    page.select_option("#order", "right")
    headings = page.locator("#sides h3").all_inner_texts()
    assert headings == ["base: 2 of 4 correct", "GRPO: 4 of 4 correct"]
    assert page.locator("#sides pre", has_text="<script>alert(1)").count() == 1
    first = page.locator("#prompt h3").inner_text()
    page.click("#next")
    assert page.locator("#prompt h3").inner_text() != first
    assert page.locator("#count").inner_text() == "2 of 32"
    page.fill("#search", "question 7 ")
    assert page.locator("#prompt h3").inner_text() == "p7" and page.locator("#next").is_disabled()
    page.fill("#search", "nothing like it")
    assert page.locator("#count").inner_text() == "no such problem"


def test_nothing_is_wider_than_the_window(page: Any) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


COVERED = """() => {
  const box = (e) => e.getBoundingClientRect();
  const overlap = (a, b) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.5;
  const found = [];
  for (const chart of document.querySelectorAll(".chart")) {
    const plot = [...chart.querySelectorAll(".nsewdrag, .barlayer .point, .scatterlayer .trace")].map(box);
    const legend = [...chart.querySelectorAll(".legend .traces")].map(box);
    const bar = [...chart.querySelectorAll(".modebar-group")].map(box);
    if (!plot.length || !legend.length) found.push(chart.id + " is empty");
    for (const [name, over, under] of [["mode bar", bar, [...plot, ...legend]], ["legend", legend, plot]]) {
      if (over.some((a) => under.some((b) => overlap(a, b)))) found.push(name + " on " + chart.id);
    }
    const [space, names] = [box(chart), [...chart.querySelectorAll(".legendtext, .xtitle, .ytitle, .xtick, .ytick")]];
    if (names.some((e) => box(e).left < space.left - 1 || box(e).right > space.right + 1 ||
      box(e).bottom > space.bottom + 1)) found.push("text outside " + chart.id);
  }
  return found;
}"""


def test_nothing_covers_a_chart_or_its_legend(large_page: Any) -> None:
    large_page.hover("#pass-chart")  # the bar of buttons appears
    assert large_page.evaluate(COVERED) == []


CUT = """() => [...document.querySelectorAll(".wide, td, th, nav, nav a, h2, p, button, select")].filter((e) => {
  const own = e.getBoundingClientRect();
  if (!own.width) return false; // not shown
  const around = (e.closest(".wide") ?? document.documentElement).getBoundingClientRect();
  return own.left < around.left - 1 || own.right > Math.min(around.right, window.innerWidth) + 1 ||
    (e.tagName !== "SELECT" && e.scrollWidth > e.clientWidth + 1 && e.tagName !== "A");
}).map((e) => e.tagName + " " + e.textContent)"""


def test_no_entry_of_a_table_or_of_the_navigation_is_cut(large_page: Any) -> None:
    assert large_page.evaluate(CUT) == []
    titles = large_page.locator(".wide").nth(4).locator("th").all_text_contents()
    assert titles[1:] == list(DIVERSITY.values())


def test_every_problem_and_completion_can_be_read(large_page: Any) -> None:
    large_page.fill("#search", "")
    assert large_page.locator("#count").inner_text() == f"1 of {PROBLEMS}"
    seen = large_page.evaluate(
        """() => Array.from({ length: 100 }, () => {
            const shown = document.querySelector("#prompt h3").textContent;
            document.querySelector("#next").click();
            return shown;
        })"""
    )
    assert set(seen) == {f"p{i}" for i in range(PROBLEMS)}
    large_page.fill("#search", "question 5 ")  # none of its twelve samples is correct, only the greedy completion is
    for column in large_page.locator("#sides > div").all():
        texts = column.locator("pre")
        assert sum(text.is_visible() for text in texts.all()) == 6
        column.locator("summary", has_text="7 other completions").click()
        assert all(text.is_visible() for text in texts.all())
        assert set(texts.all_inner_texts()) == {f"wrong {i}" for i in range(12)} | {"select 1"}


def test_both_columns_stay_with_one_label_in_both(large_page: Any) -> None:
    large_page.fill("#search", "")
    large_page.select_option("#left", "GRPO")
    large_page.select_option("#right", "GRPO")
    headings = large_page.locator("#sides h3").all_inner_texts()
    assert len(headings) == 2 and headings[0] == headings[1] and headings[0].startswith("GRPO: ")


def test_a_legend_is_in_the_order_of_the_bars(large_page: Any) -> None:
    names = ["cte", "nested", "plan", "stepwise", "other"]
    assert large_page.locator("#styles-chart .legendtext").all_text_contents() == names
    lefts = large_page.evaluate(
        """() => [...document.querySelectorAll("#styles-chart .barlayer .trace")].map(
            (bar) => bar.querySelector(".point").getBoundingClientRect().left)"""
    )
    assert lefts == sorted(lefts) and len(lefts) == len(names)


CONTRAST = """() => {
  const luminance = (color) => {
    const parts = color.match(/\\d+/g).slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const page = luminance(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll("#pass-chart .js-line")].map((e) => getComputedStyle(e))
    .filter((style) => style.strokeDasharray !== "none").map((style) => luminance(style.stroke))
    .map((line) => (Math.max(line, page) + 0.05) / (Math.min(line, page) + 0.05));
}"""


def test_the_line_of_the_base_is_clear_on_its_background(large_page: Any) -> None:
    ratios = large_page.evaluate(CONTRAST)
    assert ratios and min(ratios) > 4.5  # the ratio that WCAG 2.1 asks of text


def test_a_report_of_one_label_has_one_column(browser: Any, tmp_path: Path) -> None:
    run = write_eval(tmp_path / "base", "base", [4, 2])
    address = report([run], tmp_path / "out", base="base", title="T").as_uri()
    with opened(browser, address, "wide", "light") as page:
        assert page.locator("#sides h3").count() == 1 and not page.locator("#right").is_visible()


def test_a_problem_is_shown_through_training(large_page: Any) -> None:
    large_page.select_option("#timeline-problem", "0")
    assert large_page.locator("#timeline-problem option").all_text_contents() == ["p1 (2 changes)", "p0 (0 changes)"]
    assert large_page.locator("#timeline-prompt").inner_text() == "prompt of p1"
    assert large_page.locator("#timeline h3").all_inner_texts() == ["step 0", "step 1", "step 2"]
    assert large_page.locator("#timeline b").all_inner_texts() == ["wrong", "correct", "wrong"]
    large_page.select_option("#timeline-problem", "1")
    assert large_page.locator("#timeline h3").all_inner_texts() == ["steps 0 to 1", "step 2"]
    assert large_page.locator("#timeline pre").all_inner_texts() == ["wrong", ATTACK]
