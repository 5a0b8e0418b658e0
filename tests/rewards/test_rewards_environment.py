# pyright: reportMissingImports=false
"""examples/dph_sql.py in the package verifiers: its loader, its launch of the tool's process, its client, its scoring.

It runs in an environment with that package (the option keeps tests/verifiers from standing in for it):
    python -m pytest --noconftest -o pythonpath= -m engines tests/rewards/test_rewards_environment.py
"""

import asyncio
import json
import os
import re
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

vf = pytest.importorskip("verifiers.v1", reason="verifiers is not installed")
pytestmark = pytest.mark.engines
ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    {"id": "items", "prompt": "How many items are there?", "answer": "SELECT count(*) FROM item"},
    {"id": "broken", "prompt": "What is wrong?", "answer": "SELECT nothing FROM nowhere"},
]


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    from verifiers.v1.utils.loaders import load_taskset, taskset_config_type

    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE item (name TEXT, price REAL)")
        connection.executemany("INSERT INTO item VALUES (?, ?)", [("pen", 1.5), ("ink", 0.5), ("cup", 3.0)])
    connection.close()
    rows = [{**row, "verifier": "sql", "db": str(path)} for row in ROWS]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'examples'}:{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(ROOT / "examples")
    options = {"path": str(tmp_path / "rows.jsonl")}
    config = taskset_config_type("dph_sql")(id="dph_sql", options=options, task={"query": {"rows": 2}})
    return list(load_taskset(config))


@pytest.fixture
def channel(tasks: list[Any]):
    """What a rollout gives its tools: the row, as verifiers' interception answers it. Yields the address."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/task"
            data = tasks[0].data
            body = json.dumps({"cls": f"{type(data).__module__}:SqlData", "task": data.model_dump_json()}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.timeout(300)
def test_the_tool_queries_the_database_of_the_row(tasks: list[Any], channel: str) -> None:
    from verifiers.v1.harnesses.utils.mcp import mcp_client
    from verifiers.v1.mcp import serve

    async def calls(*queries: str) -> tuple[list[str], list[str]]:
        (toolset,) = type(tasks[0]).toolsets(tasks[0].config)
        async with serve(toolset, state_secret="secret", state_base=channel) as url, mcp_client({"url": url}) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            return tools, [(await client.call_tool("query", {"sql": sql})).content[0].text for sql in queries]

    tools, answers = asyncio.run(calls("SELECT price FROM item ORDER BY price", "DROP TABLE item"))
    assert tools == ["query"]
    assert answers[0] == "price\n0.5\n1.5\n(the first 2 of 3 rows)"
    assert answers[1].startswith("Error: ") and "not authorized" in answers[1]


def test_the_last_message_is_judged_by_our_verifier(tasks: list[Any]) -> None:
    from verifiers.v1.trace import TraceTask

    async def score(task: Any, answer: str) -> float:
        trace = vf.Trace.model_construct(
            task=TraceTask(type="sql", data=task.data), rewards={}, metrics={}, nodes=[], root_reply=answer
        )
        await task.score(trace)
        return trace.reward

    assert [task.data.id for task in tasks] == ["items", "broken"]
    assert asyncio.run(score(tasks[0], "```sql\nSELECT 3\n```")) == 1.0
    assert asyncio.run(score(tasks[0], "```sql\nSELECT 7\n```")) == 0.0
    with pytest.raises(Exception, match="not judged"):
        asyncio.run(score(tasks[1], "```sql\nSELECT 3\n```"))


def test_a_problem_without_a_database_is_refused(tmp_path: Path, tasks: list[Any]) -> None:
    from verifiers.v1.utils.loaders import load_taskset, taskset_config_type

    from dph.errors import UserError

    (tmp_path / "maths.jsonl").write_text('{"id": "sum", "prompt": "1 + 1", "answer": "2", "verifier": "math"}\n')
    options = {"path": str(tmp_path / "maths.jsonl")}
    with pytest.raises(UserError, match=re.escape("'sum' has none")):
        list(load_taskset(taskset_config_type("dph_sql")(id="dph_sql", options=options)))
