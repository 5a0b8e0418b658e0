"""Shared code of the text-to-SQL data sets: files, schemas, prompts."""

__all__ = ["data", "porter", "prompt", "reserved", "schema", "value_search"]
