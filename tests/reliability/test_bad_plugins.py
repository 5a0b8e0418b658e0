"""A plug-in of any kind that raises, or returns something else than its protocol says, is named in one sentence."""

import json
import textwrap

import pytest

from complaints import complaint
from helpers import base_run, presampled

HEAD = """
import torch
from dph.types import Completion, Outcome, Problem, Verdict
from dph.tasks import register_task
from dph.verifiers import register_verifier
from dph.objective.advantages import register_advantage
from dph.objective.divergences import Divergence, register_divergence
from dph.objective.policy_losses import register_policy_loss
from dph.sampling import Sampler, register_sampler
"""
VERIFIER = """
@register_verifier("mine")
class Mine:
    def verify(self, items): {verify}
    def check(self, problems): {check}
    def close(self): pass
"""
RIGHT = "return [Verdict(Outcome.CORRECT, 1.0) for _ in items]"
TASK = """@register_task("mine")
class MyTask:
    def problems(self, split): {body}
    def style(self, problem, text): {style}
"""
LOSS = '@register_policy_loss("mine"{more})\ndef loss(logprobs, old_logprobs, advantages, mask{takes}): {body}\n'
SAMPLER = """
@register_sampler("mine")
def make(policy, config, **_):
    {make}
    class Mine(Sampler):
        def sample(self, prompts, params, keys): {sample}
    return Mine()
"""
ADVANTAGE = '@register_advantage("mine")\ndef mine(group): {body}\n'
DIVERGENCE = '@register_divergence("mine")\ndef mine(): {body}\n'
ONE = 'Problem("1", "easy 1", "yes", "exact")'
ANSWER = "[[Completion([5], [-0.1], 'stop')] * params.n for _ in prompts]"

PLUGINS = {
    "an advantage that raises": (
        ADVANTAGE.format(body="return group.nothing"),
        "advantage 'mine' raised AttributeError in line 11",
    ),
    "an advantage of lists": (
        ADVANTAGE.format(body="return [0.0]"),
        "advantage 'mine' returned list of 1, not a tensor [2] or [2, ",
    ),
    "an advantage of another shape": (
        ADVANTAGE.format(body="return torch.zeros(7)"),
        "returned the shape [7], not a tensor [2]",
    ),
    "an advantage of NaN": (ADVANTAGE.format(body="return group.rewards * float('nan')"), "a value that is not finite"),
    "a loss that raises": (
        LOSS.format(more="", takes="", body="return 1 / 0"),
        "policy loss 'mine' raised ZeroDivisionError in line 11",
    ),
    "a loss that is one number": (
        LOSS.format(more="", takes="", body="return logprobs.sum()"),
        "policy loss 'mine' returned the shape [], not a tensor [",
    ),
    "a loss that is nothing": (
        LOSS.format(more="", takes="", body="pass"),
        "policy loss 'mine' returned NoneType, not a tensor [",
    ),
    "a selection of another shape": (
        LOSS.format(
            more=", select=lambda old, advantages, uniform: old[:1] > 9",
            takes=", *, selected",
            body="return logprobs * mask",
        ),
        "the selection of policy loss 'mine' returned the shape [1], not a tensor [",
    ),
    "a divergence that raises": (
        DIVERGENCE.format(body="return no_name"),
        "divergence 'mine' raised NameError in line 11",
    ),
    "a divergence that is a function": (
        DIVERGENCE.format(body="return abs"),
        "returned builtin_function_or_method, not a Divergence",
    ),
    "a generator of another shape": (
        DIVERGENCE.format(body="return Divergence('mine', lambda l: l.sum(), lambda l: l)"),
        "divergence 'mine' returned the shape [], not a tensor [",
    ),
    "a verifier that cannot be made": (
        VERIFIER.format(verify=RIGHT, check="return {}") + "    def __init__(self): raise OSError('no server')\n",
        "verifier 'mine' raised OSError",
    ),
    "a verifier that raises": (
        VERIFIER.format(verify="return items[99]", check="return {}"),
        "verify of verifier 'mine' raised IndexError in line 13",
    ),
    "verdicts that are numbers": (
        VERIFIER.format(verify="return [1.0] * len(items)", check="return {}"),
        "verify of verifier 'mine' returned list of",
    ),
    "verdicts that are too few": (
        VERIFIER.format(verify="return []", check="return {}"),
        "verify of verifier 'mine' returned list of 0",
    ),
    "a check that returns a list": (
        VERIFIER.format(verify=RIGHT, check="return []"),
        "check of verifier 'mine' returned list of 0, not a dict",
    ),
    "a check that raises": (
        VERIFIER.format(verify=RIGHT, check="raise KeyError('db')"),
        "check of verifier 'mine' raised KeyError in line 14: 'db'",
    ),
    "a task that raises": (
        TASK.format(body="return self.rows", style="pass"),
        "problems of task MyTask raised AttributeError in line 12",
    ),
    "a task of rows": (
        TASK.format(body="return [{'prompt': 'x'}]", style="pass"),
        "problems of task MyTask returned list of 1, not a list of Problem",
    ),
    "a task of ids that are numbers": (
        TASK.format(body="return [Problem(1, 'easy 1', 'yes', 'exact')]", style="pass"),
        "id and verifier of problem 1 must be text",
    ),
    "a style that is a number": (
        TASK.format(body=f"return [{ONE}]", style="return 3"),
        "style of task MyTask returned int, not text or None",
    ),
    "a style that raises": (
        TASK.format(body=f"return [{ONE}]", style="return text[99]"),
        "style of task MyTask raised IndexError in line 13",
    ),
    "a sampler that cannot be made": (
        SAMPLER.format(make="raise RuntimeError('no GPU')", sample="pass"),
        "sampler engine 'mine' raised RuntimeError",
    ),
    "a sampler that raises": (
        SAMPLER.format(make="pass", sample="return prompts['x']"),
        "sampler engine 'mine' raised TypeError",
    ),
    "a sampler of too few responses": (
        SAMPLER.format(make="pass", sample=f"return {ANSWER.replace('params.n', '1')}"),
        "sampler engine 'mine' returned list of 1, not 2 Completion",
    ),
    "a sampler of texts": (
        SAMPLER.format(make="pass", sample="return [['yes'] * params.n for _ in prompts]"),
        "not 2 Completion, each with",
    ),
    "a sampler without log-probabilities": (
        SAMPLER.format(make="pass", sample=f"return {ANSWER.replace('[-0.1]', '[]')}"),
        "returned list of 2, not 2 Completion, each with a log-prob",
    ),
    "a sampler that leaves prompts out": (
        SAMPLER.format(make="pass", sample=f"return {ANSWER}[1:]"),
        "returned responses to 3 prompts, not to 4",
    ),
}
LOSSES = ["--task", "toy", "--loss.policy", "mine"]
DIVERGENCES = [
    "--task",
    "toy",
    "--loss.divergence",
    "mine",
    "--loss.eta",
    "1",
    "--rehearsal.rows",
    "4",
    "--rollout.n",
    "4",
]
OWN_TASK = ["--task", "mine"]
CHOSEN = {
    "advantage": ["--task", "toy", "--advantage.name", "mine"],
    **dict.fromkeys(("loss", "selection"), LOSSES),
    **dict.fromkeys(("divergence", "generator"), DIVERGENCES),
    **dict.fromkeys(("task", "style"), OWN_TASK),
    "sampler": ["--task", "toy", "--sampler.engine", "mine"],
}


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plug_in_that_fails_is_named(tmp_path, capsys, name):
    text, expected = PLUGINS[name]
    (tmp_path / "plug.py").write_text(textwrap.dedent(HEAD) + text)
    rows = [{"prompt": f"hard {i}", "answer": "yes", "verifier": "mine"} for i in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    chosen = CHOSEN.get(name.split()[1], ["--task", "records", "--data", tmp_path / "rows.jsonl"])
    stage = ["eval"] if "style" in name else ["train", "--steps", "1", "--rollout.prompts", "4", "--loss.eta", "0"]
    options = ["--plugin", tmp_path / "plug.py", "--model.path", base_run() / "model", "--out", tmp_path / "run"]
    small = ["--rollout.n", "2", "--rollout.max-tokens", "4", "--rollout.max-prompt-tokens", "8"]
    if "--loss.divergence" in chosen:
        chosen = [*chosen, "--rehearsal.path", presampled()]
    assert expected in complaint(capsys, *stage, *options, *small, *chosen)


DEMONSTRATIONS = {
    "raise OSError('no file')": "demonstrations of task MyTask raised OSError in line 14: no file",
    "return [{'prompt': 'x', 'response': None}]": "returned list of 1, not rows with the texts prompt and response",
    "return [{'question': 'x'}]": "demonstrations of task MyTask raised KeyError: 'prompt'",
    "return None": "demonstrations of task MyTask raised TypeError",
}


@pytest.mark.parametrize("body", DEMONSTRATIONS)
def test_demonstrations_that_fail_are_named(tmp_path, capsys, body):
    text = TASK.format(body=f"return [{ONE}]", style="pass")
    (tmp_path / "plug.py").write_text(f"{HEAD}{text}    def demonstrations(self, count, seed): {body}\n")
    words = ["sft", "--plugin", tmp_path / "plug.py", "--task.name", "mine", "--out", tmp_path / "run"]
    assert DEMONSTRATIONS[body] in complaint(capsys, *words)
