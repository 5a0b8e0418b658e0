# pyright: reportMissingImports=false
"""SQL problems as an environment of `verifiers` 0.4: a tool on each problem's database, and our verdict on the answer.

    PYTHONPATH=examples eval dph_sql --env.taskset.source bird --env.taskset.options '{"root": "data/bird"}'

`source`, `options` and `split` are the name, options and split of `dph train --task.*`. A model may call the tool as
often as the harness allows; the last message of the transcript is judged.
"""

import asyncio
from collections.abc import Iterator

import verifiers.v1 as vf
from pydantic import Field

from dph.build import load_problems
from dph.config import TaskConfig
from dph.rewards import reward_function
from dph.types import as_messages, problem_json, read_problem
from dph.verifiers.sql.tool import SqlTool, database_of

__all__ = ["SqlTaskset"]

judge = reward_function("sql")


class SqlData(vf.TaskData):
    problem: str
    """As `problem_json` writes it."""


class QueryConfig(vf.ToolsetConfig):
    timeout: float = 5.0
    rows: int = 20
    characters: int = 2000
    memory_mb: int = 1024


class QueryToolset(vf.Toolset[QueryConfig]):
    """One process for each rollout, which runs queries in a worker that can be killed."""

    TOOL_PREFIX = None

    async def setup_task(self, task: SqlData) -> None:
        limits = {name: getattr(self.config, name) for name in ("timeout", "rows", "characters", "memory_mb")}
        self._tool, self._database = SqlTool(workers=1, **limits), database_of(read_problem(task.problem))

    @vf.tool
    async def query(self, sql: str) -> str:
        """Run a read-only SQL query, in SQLite's dialect, on the database of the question."""
        return await asyncio.to_thread(self._tool.query, self._database, sql)


class SqlTaskConfig(vf.TaskConfig):
    query: QueryConfig = QueryConfig()


class SqlTask(vf.Task[SqlData, vf.State, SqlTaskConfig]):
    @classmethod
    def toolsets(cls, config: SqlTaskConfig) -> list[vf.Toolset]:
        return [QueryToolset(config.query)]

    @vf.reward(weight=1.0)
    async def correct(self, trace: vf.Trace) -> float:
        problem = read_problem(self.data.problem)
        databases = {name: problem.meta[name] for name in ("db", "suite") if name in problem.meta}
        verdict = await judge.averdict(trace.last_reply, problem.answer, **databases)
        if not verdict.scored:  # an error of the trace, so that training leaves it out
            raise RuntimeError(f"the response was not judged: {verdict.detail}")
        return verdict.reward


class SqlConfig(vf.TasksetConfig):
    task: SqlTaskConfig = SqlTaskConfig()
    source: str = "records"
    options: dict[str, str] = Field(default_factory=dict)
    split: str = "train"


class SqlTaskset(vf.Taskset[SqlTask, SqlConfig]):
    def load(self) -> Iterator[SqlTask]:
        _, problems = load_problems(TaskConfig(self.config.source, self.config.options, self.config.split))
        for problem in problems:
            database_of(problem)  # or an error before anything is sampled
            prompt = as_messages(problem.prompt)
            yield SqlTask(SqlData(id=problem.id, prompt=prompt, problem=problem_json(problem)), self.config.task)


if __name__ == "__main__":
    QueryToolset.run()
