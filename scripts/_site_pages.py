"""What the documentation site takes from the source when it is built (a hook of mkdocs; see mkdocs.yml).

* `<!-- settings -->` in a page becomes one table of settings for each stage.
* Each package in the table of docs/reference/api.md gets a page with its public names: its `__all__`, the names that it
  imports as themselves (`import X as X`), or its modules if it has neither.
* A link to a file of the repository outside docs/ becomes the path of the file. GitHub follows such links; the site
  cannot.
"""

import ast
import re
import typing
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal

from dph.config import STAGES, every_setting, field_docs

ROOT = Path(__file__).parents[1]
_API = "reference/api.md"
_PACKAGE = re.compile(r"^\| `((?:dph|mathequal)[\w.]*)` \|", re.MULTILINE)
_ALONE = {"dph": ("dph.types", "dph.errors", "dph.registry", "dph.build")}
"""Modules that no package of the table holds."""
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>(?:\.\./)+[^)#\s]+)(?:#[^)\s]*)?\)")


def packages() -> list[str]:
    """The packages that have a page in the reference."""
    return _PACKAGE.findall((ROOT / "docs" / _API).read_text(encoding="utf-8"))


def _page(package: str) -> str:
    return f"reference/api/{package.removeprefix('dph.')}.md"


def on_config(config: Any) -> Any:
    """Called by mkdocs first: the pages of the packages join the navigation."""
    (reference,) = (entry["Reference"] for entry in config.nav if "Reference" in entry)
    (api,) = (entry["API"] for entry in reference if "API" in entry)
    api += [{package: _page(package)} for package in packages()]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs with all files: the pages of the packages join them."""
    from mkdocs.structure.files import File  # pyright: ignore[reportMissingImports]

    for package in packages():
        names = [api_of(package), *(f"::: {module}" for module in _ALONE.get(package, ()))]
        files.append(File.generated(config, _page(package), content="\n\n".join([f"# {package}", *names])))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs for the source of each page."""
    if page.file.src_uri == _API:
        markdown = _PACKAGE.sub(lambda match: f"| [`{match[1]}`](api/{Path(_page(match[1])).name}) |", markdown)
    if page.file.abs_src_path:
        source = Path(page.file.abs_src_path)
        markdown = _LINK.sub(lambda match: _outside(match, source), markdown)
    return markdown.replace("<!-- settings -->", settings_tables())


def _outside(link: re.Match[str], source: Path) -> str:
    """A link as it is, or the path in its place where it leads to an existing file outside docs/."""
    target = (source.parent / link["target"]).resolve()
    if target.exists() and ROOT in target.parents and ROOT / "docs" not in target.parents:
        path = f"`{target.relative_to(ROOT)}`"
        return path if link["text"].strip("`") in (target.name, path.strip("`")) else f"{link['text']} ({path})"
    return link[0]


def api_of(package: str) -> str:
    """Directives of mkdocstrings for what a package offers."""
    folder = ROOT / "src" / package.replace(".", "/")
    if public := public_names(folder / "__init__.py"):
        return f"::: {package}\n    options:\n      show_root_heading: false\n      members: [{', '.join(public)}]"
    modules = [path.stem for path in sorted(folder.glob("*.py")) if not path.stem.startswith("_")]
    head = f"::: {package}\n    options:\n      show_root_heading: false\n      summary: false\n      members: false"
    return "\n\n".join([head, *(f"::: {package}.{name}" for name in modules)])


def public_names(source: Path) -> list[str]:
    """The names in `__all__` of a module, or those that it imports as themselves, read without importing it."""
    exported: list[str] = []
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return [name for name in ast.literal_eval(value) if not name.startswith("_")]
            case ast.ImportFrom(names=names):
                exported += [alias.name for alias in names if alias.asname == alias.name]
    return exported


def settings_tables() -> str:
    """One section with one table for each stage of the command line."""
    parts = []
    for stage, config in STAGES.items():
        doc = (config.__doc__ or "").partition(": ")[2]
        rows = "\n".join(f"| {' | '.join(row)} |" for row in settings_rows(config))
        parts.append(f"## dph {stage}\n\n{doc[:1].upper()}{doc[1:]}\n\n{_HEAD}\n{rows}")
    return "\n\n".join(parts)


_HEAD = "| setting | values | default | meaning |\n|---|---|---|---|"


def settings_rows(config: type[Any]) -> list[tuple[str, str, str, str]]:
    """Name, values, default and meaning of every setting, in the order of the help page."""
    rows = []
    for setting in every_setting(config()):
        meaning = field_docs(setting.owner)[setting.name.rpartition(".")[2]]
        values = ", ".join([_values(setting.kind), *(bound.words.removeprefix("be ") for bound in setting.bounds)])
        rows.append((f"`{setting.name}`", _cell(values), _default(setting.value), _cell(meaning)))
    return rows


def _values(hint: Any) -> str:
    """Which values a field takes, in words."""
    if typing.get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return f"list of {_values(typing.get_args(hint)[0])}"
    if typing.get_origin(hint) is dict:
        return "tables" if is_dataclass(typing.get_args(hint)[1]) else "key value …"
    return _TYPES[hint]


_TYPES = {str: "text", int: "whole number", float: "number", bool: "true, false"}


def _default(value: object) -> str:
    if value in ("", (), {}):
        return ""
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
