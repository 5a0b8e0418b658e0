"""Test support: a tiny model whose chat template calls tools, two SQL problems, and the text of its three turns."""

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from dph.integrations.verl.data import write_rows
from dph.models.scratch import bpe_tokenizer
from dph.types import Problem

TURN, END = "<|im_start|>assistant\n", "<|im_end|>"
QUESTIONS = ["How many items are there?", "What does the cheapest item cost?"]
GOLDS = ["SELECT count(*) FROM item", "SELECT min(price) FROM item"]
TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for one in m.tool_calls or [] %}<tool_call>\n{{ one.function | tojson }}\n</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def query(sql: str) -> dict[str, Any]:
    return {"name": "query", "arguments": {"sql": sql}}


def said(before: str, row: int) -> str | dict[str, Any]:
    """What response number `row` to a question says next, or the call that it makes; that of row 3 is wrong, and the
    second call of every other one fails.

    before: the text of the transcript, up to the beginning of a turn.
    """
    question = next(index for index, text in enumerate(QUESTIONS) if text in before)
    first = re.search(r"LIMIT (\d)", before)
    if first is None:
        return query(f"SELECT name FROM item LIMIT {row + 1}")
    row = int(first[1]) - 1
    if before.count(TURN) == 2:
        return query("SELECT price FROM item" if row % 2 else "SELECT x FROM item")
    return f"```sql\n{'SELECT 7' if row == 3 else GOLDS[question]}\n```"


def next_turn(before: str, row: int) -> str:
    """The same as the model writes it."""
    message = said(before, row)
    text = message if isinstance(message, str) else f"<tool_call>\n{json.dumps(message)}\n</tool_call>"
    return text + END


def make_problems(folder: Path) -> list[Problem]:
    path = folder / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE item (name TEXT, price REAL)")
        connection.executemany("INSERT INTO item VALUES (?, ?)", [("pen", 1.5), ("ink", 0.5), ("cup", 3.0)])
    connection.close()
    pairs = zip(QUESTIONS, GOLDS, strict=True)
    return [Problem(str(i), question, gold, "sql", {"db": str(path)}) for i, (question, gold) in enumerate(pairs)]


def make_tokenizer() -> Any:
    made = PreTrainedTokenizerFast(
        tokenizer_object=bpe_tokenizer([*QUESTIONS, *GOLDS, TEMPLATE], 300),
        eos_token=END,
        pad_token="<|pad|>",
        additional_special_tokens=["<|im_start|>"],
    )
    made.chat_template = TEMPLATE
    return made


def make_files(folder: Path) -> tuple[Path, Path]:
    """A random Qwen2, and verl's Parquet; returns their folders."""
    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    more = {"num_key_value_heads": 2, "max_position_embeddings": 8192, "initializer_range": 0.2}
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer), **sizes, **more, **ids))
    for saved in (model, tokenizer):
        saved.save_pretrained(folder / "model")
    (folder / "data").mkdir()
    problems = make_problems(folder)
    for name in ("train", "val"):
        write_rows(folder / "data" / f"{name}.parquet", [(problem, "shop", name) for problem in problems])
    return folder / "model", folder / "data"
