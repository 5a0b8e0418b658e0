"""What the tests of the experiments share."""

from typing import Any

from experiments.grid import Grid, grid_from


def small_grid(**more: Any) -> Grid:
    """A grid of two methods with two seeds on one base model; `more` replaces whole tables of it."""
    tree: dict[str, Any] = {
        "world": "experiments/minisql/minisql.toml",
        "domains": {"in-domain": "test", "cross-domain": "cross", "out-of-domain": "ood"},
        "seeds": [1, 2],
        "fewer_seeds": [1],
        "bases": {"base": {"label": "base"}},
        "stores": {"one": {"base": "base"}},
        "arms": {
            "grpo": {"label": "GRPO", "preset": "grpo", "tier": "core"},
            "dph_js": {"label": "DPH-JS", "preset": "dph_js", "tier": "core"},
        },
        "sweeps": {"eta": {"arm": "dph_js", "setting": "loss.eta", "values": [0.1], "tier": "wide"}},
    }
    return grid_from("test", tree | more)
