# pyright: reportMissingImports=false
"""verl's own loading and calling of the SQL tool, with the row that `dph.integrations.verl.data` writes."""

import asyncio
import sqlite3
from pathlib import Path

from engine_marks import needs

pytestmark = needs("verl")


def test_verl_loads_the_tool_and_calls_it_on_the_rows_database(tmp_path: Path) -> None:
    from verl.tools.tool_registry import initialize_tools_from_config

    from dph.integrations.verl.data import verl_row
    from dph.types import Problem

    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE item AS SELECT 'pen' AS name, 1.5 AS price")
    connection.close()
    config = tmp_path / "tools.yaml"
    config.write_text("tools: [{class_name: dph.integrations.verl.tools.QueryTool, config: {type: native, rows: 5}}]")
    (tool,) = initialize_tools_from_config(str(config))
    row = verl_row(Problem("1", "How much is a pen?", "SELECT price FROM item", "sql", {"db": str(path)}), 0, "s", "t")

    async def call(sql: object) -> str:
        """As verl's agent loop does."""
        create = row["extra_info"]["tools_kwargs"][tool.name]["create_kwargs"]
        name, _ = await tool.create(create_kwargs=create)
        response, reward, _ = await tool.execute(name, {"sql": sql}, agent_data=None)
        await tool.release(name)
        assert reward == 0
        return response.text

    assert asyncio.run(call("SELECT * FROM item")) == "name | price\npen | 1.5\n(1 rows)"
    assert asyncio.run(call("DROP TABLE item")) == "Error: DatabaseError: not authorized"
    assert asyncio.run(call(7)).startswith("Error: ")
