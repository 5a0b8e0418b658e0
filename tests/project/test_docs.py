"""The documentation against the source: links lead somewhere, every setting is explained.

`scripts/docs` checks anchors and the rest of the site.
"""

import re
from pathlib import Path

import _site_pages as site_pages
import pytest

from dph.config.load import STAGES, flatten, to_dict

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files(page):
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("stage", STAGES)
def test_the_settings_page_explains_every_setting(stage):
    rows = site_pages.settings_rows(STAGES[stage])
    leaves = {key for key in flatten(to_dict(STAGES[stage]()))}
    # a table without entries, such as task.options, is a leaf of the page and none of flatten's
    assert leaves <= {name.strip("`") for name, _, _, _ in rows}
    assert [name for name, values, _, meaning in rows if not values or not meaning] == []


def test_the_settings_page_shows_values_defaults_and_meanings():
    rows = {name: rest for name, *rest in site_pages.settings_rows(STAGES["train"])}
    assert rows["`loss.reduction`"][:2] == ["`pooled`, `per_set`", "`pooled`"]
    assert rows["`loss.eta`"][1:] == [
        "`0.2`",
        "η, weight of the rehearsal term.",
    ]  # declared in a class that it inherits from
    assert rows["`model.shared_prefix`"][:2] == ["true, false", "`true`"]
