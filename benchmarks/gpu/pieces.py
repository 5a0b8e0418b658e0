"""A large file in pieces: cut here, brought over in several calls, joined there after every piece was checked.

    python -m benchmarks.gpu.pieces cut FILE FOLDER       # pieces of at most 60 MB, and SHA256SUMS
    python -m benchmarks.gpu.pieces gather FOLDER STORE   # takes the pieces of one call; joins them once all are there

SHA256SUMS has the format of `sha256sum`: a line for each piece, the last one for the whole file.
"""

import argparse
import hashlib
import shutil
import sys
from pathlib import Path

SIZE = 60_000_000
SUMS = "SHA256SUMS"


class Damaged(Exception):
    """A piece is missing, or not the one that was cut; the message says which, and what to do."""


def digest(file: Path) -> str:
    """SHA-256 of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def cut(file: Path, folder: Path, size: int = SIZE) -> list[Path]:
    """Write a file's pieces, and SHA256SUMS, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces: list[Path] = []
    with file.open("rb") as opened:
        while part := opened.read(size):
            pieces.append(folder / f"{file.name}.{len(pieces):03}")
            pieces[-1].write_bytes(part)
    lines = [f"{digest(one)}  {one.name}\n" for one in (*pieces, file)]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")
    return pieces


def sums(folder: Path) -> dict[str, str]:
    """SHA-256 of each piece by name, the whole file last. Raises Damaged if the list is not there."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise Damaged(
            f"{folder} has no {SUMS}; make the pieces with benchmarks/gpu/pieces.py cut FILE FOLDER"
        ) from error
    return {name: value for value, name in (line.split("  ", 1) for line in lines)}


def gather(source: Path, store: Path) -> list[str]:
    """Copy the pieces in `source` into `store`; returns the names of those that are still missing.

    Raises Damaged for a piece that is not the one that was cut; it is not copied.
    """
    expected = sums(source)
    *names, _ = expected
    store.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / SUMS, store / SUMS)
    for name in names:
        if (source / name).is_file():
            if digest(source / name) != expected[name]:
                raise Damaged(f"{source / name} is not the piece that was cut; bring it again")
            shutil.copyfile(source / name, store / name)
    return [name for name in names if not (store / name).is_file()]


def join(store: Path) -> Path:
    """Join the pieces in a folder into their file, or return it if it is there.

    Raises Damaged if pieces are missing, or if the file is not the one that was cut.
    """
    *names, whole = expected = sums(store)
    file = store / whole
    if file.is_file() and digest(file) == expected[whole]:
        return file
    missing = [name for name in names if not (store / name).is_file()]
    if missing:
        raise Damaged(f"{store} lacks {len(missing)} of {len(names)} pieces, such as {missing[0]}; bring them")
    with file.open("wb") as joined:
        for name in names:
            with (store / name).open("rb") as piece:
                shutil.copyfileobj(piece, joined)
    if digest(file) != expected[whole]:
        wrong = [name for name in names if digest(store / name) != expected[name]]
        file.unlink()
        raise Damaged(
            f"the pieces in {store} do not give {whole}: {', '.join(wrong) or 'all'} differ; bring them again"
        )
    return file


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("cut", "gather"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    try:
        if given.action == "cut":
            print(f"{len(cut(given.source, given.target))} pieces in {given.target}")
            return 0
        missing = gather(given.source, given.target)
        print(f"still missing: {', '.join(missing)}" if missing else f"joined: {join(given.target)}")
        return 0
    except Damaged as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
