"""Values as the library `datasets` describes them: classes by their names, and values that it stores as JSON."""

from collections.abc import Mapping
from typing import Any

from dph.config.text import parse_json

_LISTS = ("List", "LargeList", "Sequence")


def described(schema: Any) -> Mapping[str, Any]:
    """The description of each column that the library wrote into a file's schema of Arrow; {} without one. Raises
    ValueError if it is damaged."""
    written = (schema.metadata or {}).get(b"huggingface")
    info = parse_json(written.decode()) if written else None
    features = info.get("info", {}).get("features") if isinstance(info, dict) else None
    return features if isinstance(features, dict) else {}


def as_described(row: dict[str, Any], features: Mapping[str, Any]) -> dict[str, Any]:
    """A row in which a class, stored as its number, is its name, and null without one.

    features: of each column, as `Features.to_dict()` has them. Raises ValueError for JSON that cannot be read.

    >>> classes = {"answer": {"_type": "ClassLabel", "names": ["no", "yes"]}}
    >>> as_described({"question": "Is 7 prime?", "answer": 1}, classes)
    {'question': 'Is 7 prime?', 'answer': 'yes'}
    """
    return row | {name: _value(row[name], feature) for name, feature in features.items() if name in row}


def _value(value: Any, feature: Any) -> Any:
    if isinstance(feature, list) and len(feature) == 1:  # as older versions describe a list
        feature = {"_type": "List", "feature": feature[0]}
    if value is None or not isinstance(feature, dict):
        return value
    kind = feature.get("_type")
    if kind == "ClassLabel" and isinstance(value, int):
        names = feature.get("names") or []
        return names[value] if 0 <= value < len(names) else None
    if kind == "Json" and isinstance(value, str):
        return parse_json(value)
    if kind in _LISTS:
        inner = feature.get("feature")
        if isinstance(value, list):
            return [_value(item, inner) for item in value]
        if isinstance(value, dict) and isinstance(inner, dict):  # a list of tables, stored as a table of lists
            return {key: _value(items, {"_type": "List", "feature": inner.get(key)}) for key, items in value.items()}
    if not isinstance(kind, str) and isinstance(value, dict):
        return {key: _value(item, feature.get(key)) for key, item in value.items()}
    return value
