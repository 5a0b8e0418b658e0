# pyright: reportMissingImports=false
"""Evaluate a model by Inspect AI: python inspect_log.py PROBLEMS MODEL EPOCHS FOLDER."""

import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.model import get_model
from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, accuracy, scorer, stderr
from inspect_ai.solver import TaskState, generate
from judge import right

PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"


@scorer(metrics=[accuracy(), stderr()])
def countdown() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        text = state.output.completion.strip()
        correct = right(text, state.metadata["numbers"], int(target.text))
        return Score(value=CORRECT if correct else INCORRECT, answer=text)

    return score


if __name__ == "__main__":
    problems, path, epochs, folder = sys.argv[1:]
    fields = FieldSpec(id="id", input="question", target="answer", metadata=["numbers"])
    model = get_model("hf/local", model_path=path, chat_template=PLAIN, device="cpu")
    (log,) = eval(
        Task(dataset=json_dataset(problems, fields), solver=generate(), scorer=countdown()),
        model=model,
        epochs=int(epochs),
        temperature=1.0,
        max_tokens=24,
        log_dir=folder,
        display="plain",
    )
    if log.status != "success" or log.results is None:
        sys.exit(f"Inspect ended with status {log.status}")
    print(log.results.scores[0].metrics["accuracy"].value)
