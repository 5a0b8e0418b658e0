"""What text-to-SQL data sets share: files, schemas, prompts."""
