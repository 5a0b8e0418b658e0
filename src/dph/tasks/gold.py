"""A file of gold queries in the format of Spider's and BIRD's evaluators: enough to judge predictions."""

from pathlib import Path
from typing import Any

from dph.errors import UserError
from dph.tasks.protocol import register_task
from dph.tasks.spider.hardness import hardness
from dph.tasks.sql.data import Databases, read_gold, suite_files
from dph.types import Problem


@register_task("gold")
class Gold:
    """Problems with only a gold query and a database: predictions can be judged, but there are no prompts."""

    def __init__(
        self, *, gold: str = "", databases: str = "", test_suite: str = "", skip_missing: bool = False
    ) -> None:
        """gold: file with one line "SQL<TAB>db_id" per problem; databases: folder of <db>/<db>.sqlite; test_suite:
        folder of the test-suite databases; skip_missing: leave out problems whose database is missing. Raises UserError
        if one of the first two is missing."""
        if not gold or not databases:
            raise UserError(
                "no problems were named; add --task NAME --data FOLDER, or --gold FILE --databases FOLDER for SQL alone"
            )
        self._gold = Path(gold)
        self._folder = Path(databases)
        self._suite = Path(test_suite) if test_suite else None
        self._skip_missing = skip_missing

    def size(self, split: str) -> int:
        """Number of gold queries, including those whose database is missing."""
        return len(read_gold(self._gold))

    def problems(self, split: str) -> list[Problem]:
        """All problems, for any split. Raises UserError for lines without a database and for missing databases."""
        databases = Databases([self._folder], [])
        problems = []
        for index, (sql, db_id) in enumerate(read_gold(self._gold)):
            if not db_id:
                raise UserError(f"{self._gold}, query {index + 1}: no database; a line must be SQL<TAB>database")
            path = databases.path(db_id)
            if not path.is_file():
                if self._skip_missing:
                    continue
                raise UserError(
                    f"{self._gold}, query {index + 1} needs the database {path}, which is missing; add it, "
                    "or leave such queries out with --skip-missing"
                )
            meta: dict[str, Any] = {"db": str(path.absolute()), "db_id": db_id, "index": index}
            if level := hardness(sql):
                meta["difficulty"] = level
            if self._suite is not None:
                meta["suite"] = suite_files(self._suite, db_id)
            problems.append(Problem(f"gold/{index:05d}", "", sql, "sql", meta))
        return problems

    def style(self, problem: Problem, response: str) -> str | None:
        """None: styles are unknown."""
        return None
