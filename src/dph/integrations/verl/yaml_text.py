"""Writes YAML that Hydra and OmegaConf read back with the same values."""

from collections.abc import Mapping
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _is_number(text: str) -> bool:
    try:
        float(text.replace("_", ""))
    except ValueError:
        return False
    return True


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """OmegaConf reads more words as numbers than YAML 1.1 does (1e5), and "${" as the start of an interpolation."""
    quote = '"' if _is_number(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text.replace("${", r"\${"), style=quote)


_Dumper.add_representer(str, _write_text)


def yaml_text(tree: Mapping[str, Any]) -> str:
    """Nested dictionaries, lists and scalars as YAML, in their own order."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
