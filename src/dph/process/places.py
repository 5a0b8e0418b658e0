"""The folders that a command was given, and links that must not lead out of them.

A run directory may come from elsewhere, with links in it. The folder itself may be a link, which its user made or
named. A link inside it must not lead out of it: reading through the link would copy a file of this machine into a page
or a new run, and writing through it would replace such a file.
"""

import os
import stat
from pathlib import Path

from dph.config.files import is_made_up
from dph.errors import RunError

_owned: list[Path] = []


def own(folder: str | Path) -> None:
    """Note a folder that this process was given to write into. From now on `check_place` refuses links below the
    folder. Raises RunError as `check_kernel` does."""
    place = _plain(folder)
    check_kernel(place)
    if place not in _owned:
        _owned.append(place)


def check_kernel(path: Path) -> None:
    """Raise RunError if a path leads into a folder whose files the kernel makes up, such as /proc. A new file there
    would be refused with a reason that says nothing ("No such file or directory")."""
    place = _plain(path)
    inside = place.parents if place.is_symlink() else (place, *place.parents)  # a link would itself be replaced
    above = next((folder for folder in inside if os.path.lexists(folder)), place)
    if is_made_up(above):
        raise RunError(f"{path} cannot be written: the kernel makes up the files in {above}; use another place")


def check_place(path: Path) -> None:
    """Raise RunError if a file or folder must not be written at a path.

    The path must not be a device, a pipe or a socket, must not lie in a folder that the kernel makes up, and must not
    lie behind a link within a folder that this process was given. A link in the last part of the path is allowed,
    because it is replaced and not written through.
    """
    place = _plain(path)
    check_kernel(path)
    if is_special(place):
        raise RunError(f"{path} is a device, a pipe or a socket, which a file would replace; name a file or a folder")
    given = [folder for folder in _owned if place != folder and place.is_relative_to(folder)]
    if not given:
        return
    top = min(given, key=lambda folder: len(folder.parts))
    for parent in place.parents:
        if parent == top:
            return
        if parent.is_symlink():
            raise RunError(_refusal(parent, top))


def check_links(folder: Path) -> None:
    """Raise RunError if a folder contains a link that leads out of it. Hidden folders are left out."""
    top = folder.resolve()
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(parent, name) for name in (*folders, *files)):
            if path.is_symlink() and not _target(path).is_relative_to(top):
                raise RunError(_refusal(path, folder))


def check_no_run(folder: Path, marks: tuple[str, ...] = ("manifest.json",)) -> None:
    """Raise RunError for a folder that is a run directory, because files that are no part of a run are not written into
    it. marks: the names of files by which a run directory is recognised."""
    if found := next((name for name in marks if (folder / name).exists()), ""):
        raise RunError(f"{folder} is a run directory (it has {found}), which must stay as it is; name another --out")


def is_special(path: Path) -> bool:
    """Whether there is a device, a pipe or a socket at a path, or a link to one (/dev/null, /dev/stdout). A new file
    would replace it for every program of the machine."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # there is nothing, or a link that leads nowhere
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _target(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links, which leads nowhere
        return Path(os.path.realpath(path.parent), os.readlink(path))


def _refusal(link: Path, folder: Path) -> str:
    leads = f"{link} is a link that leads out of {folder}, and nothing is read or written through it"
    return f"{leads}; put what it leads to into its place, or use another folder"


def _plain(path: str | Path) -> Path:
    return Path(os.path.abspath(path))
