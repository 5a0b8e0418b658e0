"""Draw the packages and modules directly under `dph` and the imports between them, and print them as a table.

Both are called packages here. A package stands above every package that it imports.
"""

import argparse
import ast
import textwrap
import tomllib
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import grimp
import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Curve

ROOT = Path(__file__).resolve().parents[1]
BASE = ("config", "types", "registry", "errors")
"""Packages that any other may use: drawn as one band, without arrows."""
WIDTH, HEIGHT = 3.05, 1.3
"""Size of a box."""
GAP, STEP, LANE = 0.3, 1.95, 0.5
"""Space between boxes; from row to row; for an arrow that passes a row of boxes."""
INK = "#54627a"


@dataclass
class Package:
    """A module or package directly under `dph`."""

    name: str
    modules: int
    lines: int
    says: str
    """First sentence of its docstring."""
    imports: set[str] = field(default_factory=set)


def packages() -> dict[str, Package]:
    """All packages, by the layers of the import contract from the top down."""
    graph = grimp.build_graph("dph", cache_dir=None)
    found = {}
    for name in layers():
        top = f"dph.{name}"
        modules = {top} | graph.find_descendants(top)
        text = {module: source(module) for module in modules}
        says = " ".join((ast.get_docstring(ast.parse(text[top])) or "").split("\n\n")[0].split())
        package = Package(name, len(modules), sum(len(part.splitlines()) for part in text.values()), says)
        for module in modules:
            targets = (target.split(".") for target in graph.find_modules_directly_imported_by(module))
            package.imports |= {parts[1] for parts in targets if len(parts) > 1 and parts[1] != name}
        found[name] = package
    return found


def source(module: str) -> str:
    """The text of a module."""
    path = ROOT.joinpath("src", *module.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()


def layers() -> list[str]:
    """Names of the packages in the order of the contract `layers` in pyproject.toml."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rows = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    return [name.strip() for row in rows for name in row.split("|")]


def table(found: dict[str, Package]) -> str:
    """Every package with its size and what it imports, and the totals."""
    order = list(found)
    arrows = [(package.name, target) for package in found.values() for target in package.imports]
    upward = [f"{a} → {b}" for a, b in arrows if order.index(b) < order.index(a)]
    lines = ["| package | modules | lines | imports |", "|---|---:|---:|---|"]
    for package in found.values():
        targets = ", ".join(sorted(package.imports, key=order.index))
        lines.append(f"| {package.name} | {package.modules} | {package.lines} | {targets} |")
    total = [sum(getattr(package, part) for package in found.values()) for part in ("modules", "lines")]
    lines.append(f"\n{len(found)} packages, {total[0]} modules, {total[1]} lines, {len(arrows)} arrows")
    lines.append(f"arrows that point upward: {', '.join(upward) or 'none'}")
    return "\n".join(lines)


def direct(found: dict[str, Package]) -> dict[str, set[str]]:
    """The arrows to draw: those that do not follow from a longer way over other packages."""
    drawn = [name for name in found if name not in (*BASE, "__main__")]
    above = {name: found[name].imports.intersection(drawn) for name in drawn}

    def reached(name: str) -> set[str]:
        return above[name].union(*(reached(target) for target in above[name]))

    return {name: {t for t in to if not any(t in reached(o) for o in to)} for name, to in above.items()}


def rows_of(arrows: dict[str, set[str]]) -> list[list[tuple[str, str]]]:
    """Rows from the bottom up. An entry (a, a) is a package; (a, b) is the arrow from a to b passing this row."""
    depth: dict[str, int] = {}

    def height(name: str) -> int:
        depth[name] = max((height(target) + 1 for target in arrows[name]), default=0)
        return depth[name]

    for name in arrows:
        height(name)
    users = {name: [a for a, to in arrows.items() if name in to] for name in arrows}
    for name in sorted(arrows, key=lambda n: -depth[n]):  # as near to its users as it can stand
        if users[name]:
            depth[name] = min(depth[user] for user in users[name]) - 1
    rows = [[(n, n) for n in arrows if depth[n] == level] for level in range(max(depth.values()) + 1)]
    for start, targets in arrows.items():
        for target in sorted(targets):
            for level in range(depth[target] + 1, depth[start]):
                rows[level].append((start, target))
    return rows


def chains(arrows: dict[str, set[str]], rows: list[list[tuple[str, str]]]) -> list[list[tuple[str, str]]]:
    """Each arrow as the entries that it passes, from its top to its bottom."""
    found = []
    for start, targets in arrows.items():
        for target in sorted(targets):
            between = [(start, target) for row in reversed(rows) if (start, target) in row]
            found.append([(start, start), *between, (target, target)])
    return found


def places(rows: list[list[tuple[str, str]]], ways: list[list[tuple[str, str]]]) -> dict[tuple[str, str, int], float]:
    """Middle of each entry (with its row) on the horizontal axis: near its neighbours, and apart from each other."""
    level = {(*entry, y): y for y, row in enumerate(rows) for entry in row}
    near: dict[tuple[str, str, int], list[tuple[str, str, int]]] = {key: [] for key in level}
    for way in ways:
        for upper, lower in pairwise(keyed(way, rows)):
            near[upper].append(lower)
            near[lower].append(upper)
    x = {(*entry, y): 4.0 * i for y, row in enumerate(rows) for i, entry in enumerate(row)}
    for turn in range(60):
        for y in range(len(rows)) if turn % 2 else reversed(range(len(rows))):
            row = [(*entry, y) for entry in rows[y]]
            wish = {key: sum(x[n] for n in near[key]) / len(near[key]) if near[key] else x[key] for key in row}
            row.sort(key=lambda key: wish[key])
            at = [wish[key] for key in row]
            for _ in range(200):  # push neighbours apart, both by half
                for i, (a, b) in enumerate(pairwise(row)):
                    lacking = (width(a) + width(b)) / 2 + GAP - (at[i + 1] - at[i])
                    if lacking > 0:
                        at[i], at[i + 1] = at[i] - lacking / 2, at[i + 1] + lacking / 2
            x.update(zip(row, at, strict=True))
    return x


def keyed(way: list[tuple[str, str]], rows: list[list[tuple[str, str]]]) -> list[tuple[str, str, int]]:
    """The entries of an arrow with their rows."""
    top = next(y for y, row in enumerate(rows) if way[0] in row)
    bottom = next(y for y, row in enumerate(rows) if way[-1] in row)
    return [(*entry, y) for entry, y in zip(way, range(top, bottom - 1, -1), strict=True)]


def width(key: tuple[str, str, int]) -> float:
    return WIDTH if key[0] == key[1] else LANE


def draw(found: dict[str, Package], out: Path) -> None:
    """The picture, as a file of the kind that its name says."""
    arrows = direct(found)
    rows = rows_of(arrows)
    ways = chains(arrows, rows)
    x = places(rows, ways)
    left, right = min(x.values()) - WIDTH / 2, max(x.values()) + WIDTH / 2
    top = (len(rows) - 1) * STEP + HEIGHT / 2
    bottom = -HEIGHT / 2 - STEP
    figure, ax = plt.subplots(figsize=((right - left) * 0.82, (top - bottom) * 0.82))
    ax.set(xlim=(left - 0.1, right + 0.1), ylim=(bottom - 0.1, top + 0.1))
    ax.axis("off")
    for way in ways:
        points = []
        for key in keyed(way, rows):
            y = key[2] * STEP
            points += [(x[key], y + HEIGHT / 2), (x[key], y - HEIGHT / 2)]
        points = points[1:-1]
        vertices, codes = [points[0]], [Curve.MOVETO]
        for i, (a, b) in enumerate(pairwise(points)):
            if i % 2:  # past a row of boxes
                vertices.append(b)
                codes.append(Curve.LINETO)
            else:
                middle = (a[1] + b[1]) / 2
                vertices += [(a[0], middle), (b[0], middle), b]
                codes += [Curve.CURVE4] * 3
        ax.add_patch(
            FancyArrowPatch(
                path=Curve(vertices, codes), arrowstyle="-|>", mutation_scale=13, color=INK, lw=1.3, shrinkA=0
            )
        )
    for key, value in x.items():
        if key[0] == key[1]:
            box(ax, found[key[0]], value, key[2] * STEP, WIDTH)
    wide = (right - left - GAP * (len(BASE) - 1)) / len(BASE)
    y = bottom + HEIGHT / 2
    for i, name in enumerate(BASE):
        box(ax, found[name], left + wide / 2 + i * (wide + GAP), y, wide, "#efefef")
    note = "An arrow: imports.\nArrows that follow from\nothers are not drawn."
    ax.text(left, top - 0.1, note, fontsize=9, style="italic", color=INK, va="top")
    ax.text(left, y + HEIGHT / 2 + 0.12, "Any package above may use these:", fontsize=9, style="italic", color=INK)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150, bbox_inches="tight", pad_inches=0.05)


def box(ax, package: Package, x: float, y: float, wide: float, color: str = "#e3ecf8") -> None:
    """A package: name, size, and the beginning of its docstring."""
    corner = (x - wide / 2, y - HEIGHT / 2)
    ax.add_patch(FancyBboxPatch(corner, wide, HEIGHT, boxstyle="round,pad=0,rounding_size=0.1", fc=color, ec=INK))
    count = f"{package.lines} lines" if package.modules == 1 else f"{package.modules} modules, {package.lines} lines"
    says = textwrap.wrap(package.says.replace("`", ""), int(wide * 9.2), max_lines=3, placeholder=" …")
    left = corner[0] + 0.1
    ax.text(left, y + 0.43, package.name, fontsize=12, weight="bold", va="center")
    ax.text(left, y + 0.19, count, fontsize=8, va="center", color=INK)
    ax.text(left, y + 0.05, "\n".join(says), fontsize=8, va="top", linespacing=1.15)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "figures" / "map.png", help="the picture")
    out = parser.parse_args().out
    found = packages()
    print(table(found))
    draw(found, out)


if __name__ == "__main__":
    main()
