"""Problems as verl's Parquet, in the folder `data` of a launch: `python -m dph.integrations.verl.data LAUNCH`.

Run it on a machine that has the data, after pre-sampling. train.parquet holds the prompts that training samples (D_exp,
or all for baselines), val.parquet the prompts that the monitor measures: of the task's split under the task's name, of
each further set under monitor/NAME. The plug-in reads the rehearsal set from the presample run itself.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dph.config import ModelConfig, Permitted, TrainConfig, VerlConfig, code_of, from_dict, nested, only, read_settings
from dph.engine import (
    Rendering,
    check_replaced,
    check_variables,
    encode_problem,
    load_plugin,
    load_problems,
    load_tokenizer,
    make_verifiers,
    monitored_sets,
    open_presampled,
    refuse_own_variables,
    say,
    show_messages,
    training_problems,
    usable_problems,
    written_atomically,
)
from dph.errors import UserError
from dph.integrations.verl.__main__ import one_sentence
from dph.integrations.verl.settings import QUERY_TOOL
from dph.types import Problem, as_messages, problem_json

MARK = "made by dph verl"
"""In every table, so that a file of somebody else is not replaced."""


def verl_row(problem: Problem, index: int, source: str, split: str) -> dict[str, Any]:
    """One problem as a row of verl's dataset; extra_info.problem holds the problem itself, as JSON, and tools_kwargs
    its database, an empty text without one."""
    tools = {QUERY_TOOL: {"create_kwargs": {"database": str(problem.meta.get("db") or "")}}}
    return {
        "data_source": source,
        "prompt": [{"role": message["role"], "content": message["content"]} for message in as_messages(problem.prompt)],
        "ability": problem.verifier,
        "reward_model": {"style": "rule", "ground_truth": str(problem.answer)},
        "extra_info": {"index": index, "split": split, "problem": problem_json(problem), "tools_kwargs": tools},
    }


def write_rows(path: Path, problems: Sequence[tuple[Problem, str, str]]) -> None:
    """Write problems, of which there is at least one, for verl, each with its source and split."""
    rows = [verl_row(problem, index, *where) for index, (problem, *where) in enumerate(problems)]
    table = pa.Table.from_pylist(rows).replace_schema_metadata({"made_by": MARK})
    with written_atomically(path) as file:
        pq.write_table(table, file)


def chat_tokenizer(model: ModelConfig) -> Any:
    """The tokenizer with whose chat template verl renders every prompt. Raises UserError if it has none."""
    tokenizer = load_tokenizer(model)
    if not getattr(tokenizer, "chat_template", None):
        raise UserError(
            f"the tokenizer of {model.path} has no chat template, which verl needs; use a chat model or add one"
        )
    return tokenizer


def convert(config: TrainConfig, out: Path) -> None:
    """Write train.parquet and val.parquet. Raises UserError for fewer prompts than a step takes, and for a prompt that
    the chat template cannot render or that sets variables of its own, which verl does not read."""
    check_replaced([out / "train.parquet", out / "val.parquet"], MARK, "dph verl", "dph verl --out")
    tokenizer, rendering = chat_tokenizer(config.model), Rendering.of(config.model)
    check_variables(tokenizer, rendering)
    task, problems = load_problems(config.task)
    if config.rehearsal.path:
        made = open_presampled(Path(config.rehearsal.path))
        problems = training_problems(made, config.task, config.prompt_set, problems)
    with make_verifiers(config.verifier) as verifiers:
        train = usable_problems(verifiers, problems)
    if len(train) < config.rollout.prompts:
        raise UserError(
            f"there are {len(train)} prompts to train on, fewer than a step takes (rollout.prompts "
            f"{config.rollout.prompts}); lower it"
        )
    sets = monitored_sets(config.monitor, task, shuffle=config.task.shuffle)
    sources = {one.prefix: one.prefix.rstrip("/") for one in sets} | {"eval/": config.task.name}
    held_out = [(problem, sources[one.prefix], one.split) for one in sets for problem in one.problems]
    every = [*train, *(problem for problem, *_ in held_out)]
    refuse_own_variables(every, "verl", "model.chat_template_kwargs")
    for problem in every:
        encode_problem(tokenizer, problem, rendering)
    out.mkdir(parents=True, exist_ok=True)
    write_rows(out / "train.parquet", [(problem, config.task.name, config.task.split) for problem in train])
    write_rows(out / "val.parquet", held_out)
    say(f"{len(train)} prompts to train on and {len(held_out)} held-out ones, in {out}")


def main() -> None:
    """Convert the problems of the launch that the command line names, with the code of others that it names too."""
    show_messages()
    launch, words = Path(sys.argv[1] if len(sys.argv) > 1 else "--help"), sys.argv[2:]
    settings = launch / "train.toml"
    if not settings.is_file():
        sys.exit("usage: python -m dph.integrations.verl.data LAUNCH [flags], a folder that `dph verl` wrote")
    config = from_dict(VerlConfig, read_settings(settings))
    permitted = _named(words)
    permitted.check(code_of(config), str(settings))
    with only(permitted):
        for name in config.plugins:
            load_plugin(name)
        convert(config, launch / "data")


def _named(words: Sequence[str]) -> Permitted:
    """The code of others that flags name, as `data.sh` of a launch has them."""
    parser = argparse.ArgumentParser("python -m dph.integrations.verl.data LAUNCH", allow_abbrev=False)
    parser.add_argument("--plugin", action="append", default=[], dest="plugins")
    parser.add_argument("--model.trust-remote-code", action="store_true", dest="model.trust_remote_code")
    parser.add_argument("--model.attention", default="", dest="model.attention")
    parser.add_argument("--reward", default="", dest="reward.function")
    command = ["python", "-m", "dph.integrations.verl.data", *sys.argv[1:]]
    return Permitted(nested(vars(parser.parse_args(words))), command)


if __name__ == "__main__":
    one_sentence(main)()
