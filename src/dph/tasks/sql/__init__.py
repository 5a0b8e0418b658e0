"""What text-to-SQL data sets share: files, schemas, prompts."""

__all__ = ["data", "porter", "prompt", "reserved", "schema", "value_search"]
