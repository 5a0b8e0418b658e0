"""Shared code of the text-to-SQL data sets: files, schemas, prompts."""
