"""The report in a real browser: it opens without a console error, shows its charts, and can be clicked through."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from dph.report.data import read_runs
from dph.report.write import Extra, write_report
from report_support import ATTACK, write_eval, write_train

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine (set CHROMIUM to its path)")

QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
SHAPES = {"wide": (1280, 900), "phone": (390, 844)}


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
    evals, (trained, further) = read_runs([*runs, longer])
    extra = Extra(trains=[further])
    return write_report(evals, [trained], folder / "out", base="base", title="A report", extra=extra).page.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as engine:
        opened = engine.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield opened
        opened.close()


@pytest.fixture(params=[(shape, scheme) for shape in SHAPES for scheme in ("light", "dark")])
def page(request: pytest.FixtureRequest, browser: Any, address: str) -> Iterator[Any]:
    """The open page; whatever it complains about, loads from elsewhere or asks the user fails the test."""
    shape, scheme = request.param
    width, height = SHAPES[shape]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    opened, complaints = context.new_page(), []
    opened.on("console", lambda message: complaints.append(message.text) if message.type != "log" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("dialog", lambda dialog: (complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
    opened.on(
        "request",
        lambda asked: None if asked.url.startswith(("file:", "data:", "blob:")) else complaints.append(asked.url),
    )
    opened.goto(address)
    opened.wait_for_selector("body[data-ready=yes]", timeout=60_000)
    yield opened
    context.close()
    assert complaints == []


def test_charts_are_drawn_and_follow_their_controls(page: Any) -> None:
    assert page.locator("#pass-chart .trace").count() == 6  # a line and a band for each of three labels
    page.select_option("#pass-split", "ood")
    assert page.locator("#pass-chart .legendtext").all_text_contents() == ["base", "GRPO", "DPH-JS"]
    page.select_option("#training-metric", "reward")
    assert page.locator("#training-chart .ytitle").text_content() == "reward"
    page.check("#training-each")
    assert page.locator("#training-chart .trace").count() == 1
    page.locator("#training-chart .legendtoggle").nth(1).click()  # further runs are hidden until they are asked for
    page.locator("#training-chart .trace").nth(1).wait_for(state="attached")
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
