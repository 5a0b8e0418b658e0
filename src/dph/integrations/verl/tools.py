# pyright: reportMissingImports=false
"""The tool `query` for verl's agent loops: read-only SQL on the database of each row's problem.

`dph.integrations.verl.data` writes the database of a SQL problem into the row's `tools_kwargs`. The rest is verl's:
`actor_rollout_ref.rollout.multi_turn.enable=True` and `…multi_turn.tool_config_path=TOOLS.yaml` with

    tools: [{class_name: dph.integrations.verl.tools.QueryTool, config: {type: native}}]
"""

import asyncio
from typing import Any
from uuid import uuid4

from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

from dph.integrations.verl.settings import QUERY_TOOL
from dph.verifiers.sql.tool import SqlTool

_SCHEMA = {
    "type": "function",
    "function": {
        "name": QUERY_TOOL,
        "description": "Run a read-only SQL query on the database of the question.",
        "parameters": {
            "type": "object",
            "properties": {"sql": {"type": "string", "description": "The query, in SQLite's dialect."}},
            "required": ["sql"],
        },
    },
}


class QueryTool(BaseTool):
    """config: the options of `dph.verifiers.sql.tool.SqlTool` (and verl's `type`)."""

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema | None = None) -> None:
        super().__init__(config, tool_schema or OpenAIFunctionToolSchema.model_validate(_SCHEMA))
        self._tool = SqlTool(**{name: value for name, value in config.items() if name != "type"})
        self._databases: dict[str, str] = {}

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        name = instance_id or str(uuid4())
        self._databases[name] = str(kwargs["create_kwargs"]["database"])
        return name, ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **_: Any
    ) -> tuple[ToolResponse, float, dict[str, Any]]:
        text = await asyncio.to_thread(self._tool.query, self._databases[instance_id], parameters.get("sql"))
        return ToolResponse(text=text), 0.0, {}

    async def release(self, instance_id: str, **_: Any) -> None:
        del self._databases[instance_id]
