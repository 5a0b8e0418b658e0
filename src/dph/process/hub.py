"""Whether a hub has a model or a data set: asked once, as the libraries repeat a failed request for half a minute."""

from typing import Literal

_SECONDS = 5.0  # for a hub to answer


def ask_hub(name: str, file: str, kind: Literal["model", "dataset"] = "model") -> None:
    """Ask the hub for a file that nearly every repository has.

    Returns when the repository is there, with this file or without it. Raises whatever the network, its library or the
    hub answers otherwise; the types are many.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError

    try:
        get_hf_file_metadata(hf_hub_url(name, file, repo_type=kind), timeout=_SECONDS)
    except EntryNotFoundError:
        return
