# pyright: reportMissingImports=false
"""verl's update with shared prompts and without: the same model, rows, loss and optimizer, in turns.

    python -m benchmarks.engines.verl_prefix  # 512+64, 16 responses to a prompt, one rank and two
    python -m benchmarks.engines.verl_prefix --sizes 64+48 --ranks 1
    python -m benchmarks.engines.verl_prefix --model 135M --precision bf16 --sizes 256+48 --ranks 1 --prompts 1

Run it in an environment with the extra `verl`. verl's training worker with its FSDP2 engine and its own loss runs on a
CPU (with the support of tests/verl_cpu), without Ray. For each size each way has one process per rank, all with the
model of `step.py` (3.4 million parameters, or `--model 135M`; fp32 with activations kept, or with `--precision bf16`
verl's defaults, bf16 and gradient checkpointing). They take optimizer steps in turn: `--prompts` prompts with their
responses, at most one prompt's rows in a micro-batch of verl, and the same token budget with shared prompts. On several
ranks verl's way has the rows of each prompt on all of them, as verl's balancing scatters them; the other has whole
groups.

It prints medians of the update, of the pass for log-probabilities over the same rows, and of the ratios within a pair;
the peak memory of the first rank beyond the memory before its first update; and the largest difference of a
log-probability, from verl's and of both from fp32.
"""

import json
import math
import os
import socket
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._support.prefix_table import compare, every_size, parser, show
from benchmarks._support.turns import Worker, answer, wait

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "verl_cpu"


BF16 = (
    "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=bf16",
    "actor_rollout_ref.model.enable_gradient_checkpointing=true",
)
"""verl's defaults, which `make_worker` changes."""


def worker(
    shared: bool,
    sizes: dict[str, int],
    budget: int,
    threads: int,
    clock: str,
    name: str,
    precision: str,
    folder: Path,
) -> None:
    """Take an optimizer step at each request; the first rank answers with its numbers."""
    import torch
    from contract_worker import batch_of, make_worker
    from verl.utils import tensordict_utils as tu
    from verl.workers.engine_workers import TrainingWorker
    from verl.workers.utils.losses import ppo_loss

    from benchmarks._support.shapes import Where
    from benchmarks.engines.step_worker import make_tokenizer, named_model
    from dph.integrations.verl.engine import IS_REHEARSAL, SharedPrefixEngine
    from dph.process.memory import resident

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    now = time.process_time if clock == "cpu" else time.perf_counter
    own = folder / f"model-{int(shared)}-{rank}"
    model = named_model(name, Where())
    model.save_pretrained(own)
    vocabulary = model.config.vocab_size
    make_tokenizer(vocabulary).save_pretrained(own)
    del model
    changes = ("actor_rollout_ref.model.override_config.attn_implementation=sdpa", *BF16 * (precision == "bf16"))
    made, actor = make_worker(own, TrainingWorker, *changes)
    torch.set_num_threads(threads)
    assert isinstance(made.engine, SharedPrefixEngine) == shared
    made.engine_config.max_token_len_per_gpu = made.engine_config.infer_max_token_len_per_gpu = budget
    made.set_loss_fn(partial(ppo_loss, config=actor))
    every = rows(sizes, vocabulary)
    count = len(every) // ranks
    places = list(range(rank * count, (rank + 1) * count) if shared else range(rank, len(every), ranks))
    facts = {"temperature": 1.0, "calculate_entropy": False, "global_batch_size": len(every)}

    def batch(**more: Any) -> Any:
        data = batch_of([every[place] for place in places], with_reference=False).exclude(IS_REHEARSAL)
        tu.assign_non_tensor(data, **facts, **more)
        return data

    before = 0
    while True:
        wait()
        before = before or resident()
        data = batch(epochs=1, mini_batch_size=len(every), dataloader_kwargs={"shuffle": False})
        start = now()
        made.train_mini_batch(data)
        found: dict[str, Any] = {"update": now() - start, "memory": resident("VmHWM") - before}
        data = batch(compute_loss=False)
        start = now()
        sequences = made.infer_batch(data)["log_probs"].unbind()
        found["log-probs"] = now() - start
        logprobs = {place: x[sizes["prompt"] - 1 : -1].clone() for place, x in zip(places, sequences, strict=True)}
        torch.save(logprobs, folder / f"{int(shared)}-{rank}.pt")
        torch.distributed.barrier()  # every rank has written
        if rank == 0:
            answer(found)


def rows(sizes: dict[str, int], vocabulary: int) -> list[Any]:
    """Prompts with random responses, old log-probabilities and advantages; the same in every process."""
    import torch

    from benchmarks.engines.step_worker import make_prompts
    from dph.training.rows import Row

    generator = torch.Generator().manual_seed(5)
    old = [-math.log(vocabulary)] * sizes["response"]
    return [
        Row(
            prompt,
            torch.randint(2, vocabulary, (sizes["response"],), generator=generator).tolist(),
            old,
            advantage=1.0 if index % 2 else -1.0,
        )
        for prompt in make_prompts(sizes["prompts"], sizes["prompt"], vocabulary)
        for index in range(sizes["responses"])
    ]


def start(ranks: int, words: list[object], shared: int) -> Worker:
    """One way: as many processes as ranks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "verl_cpu_platform,verl_cpu_rollout",
        "VERL_ENGINE_VENDOR": "dph" if shared else "cpu",
        "PYTHONPATH": os.pathsep.join(map(str, (SUPPORT, SUPPORT.parent, ROOT / "src", ROOT))),
        "PYTHONWARNINGS": "ignore",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": str(ranks),
    }
    own = [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
    return Worker("benchmarks.engines.verl_prefix", ["--worker", shared, *words], own)


def largest_differences(folder: Path, sizes: dict[str, int]) -> dict[str, float]:
    """Of a log-probability between the two ways, from what their ranks wrote, and of both from fp32."""
    import torch
    from transformers import AutoModelForCausalLM

    theirs, ours = (
        {place: x for file in folder.glob(f"{way}-*.pt") for place, x in torch.load(file).items()} for way in (0, 1)
    )
    model = AutoModelForCausalLM.from_pretrained(folder / "model-0-0", dtype=torch.float32)  # the updates' rate is 0
    exact = {}
    for place, row in enumerate(rows(sizes, model.config.vocab_size)):
        ids, steps = torch.tensor([[*row.prompt_ids, *row.response_ids]]), sizes["response"]
        with torch.no_grad():
            logits = model(input_ids=ids, logits_to_keep=steps + 1).logits[0, :-1]
        exact[place] = logits.log_softmax(-1).gather(-1, ids[0, -steps:, None]).squeeze(-1)
    assert theirs.keys() == ours.keys() == exact.keys()

    def largest(one: dict[int, Any], other: dict[int, Any]) -> float:
        return max(float((one[place] - x).abs().max()) for place, x in other.items())

    return {"shared": largest(theirs, ours), "verl's": largest(exact, theirs), "ours": largest(exact, ours)}


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        shared, sizes, budget, threads, clock, name, precision, folder = sys.argv[2:]
        worker(shared == "1", json.loads(sizes), int(budget), int(threads), clock, name, precision, Path(folder))
        return
    options = parser((__doc__ or "").splitlines()[0], ["512+64"], [16])
    options.add_argument("--ranks", nargs="+", type=int, default=[1, 2], help="processes of each engine")
    help = "bf16: as verl's defaults, with gradient checkpointing"
    options.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help=help)
    args = options.parse_args()
    every = []
    for sizes in every_size(args):
        for ranks in args.ranks:
            if sizes["prompts"] % ranks:
                raise SystemExit(f"{sizes['prompts']} prompts do not divide over {ranks} ranks; change --prompts")
            budget = sizes["responses"] * (sizes["prompt"] + sizes["response"])
            with tempfile.TemporaryDirectory() as folder:
                words = [json.dumps(sizes), budget, args.threads, args.clock, args.model, args.precision, folder]
                every.append(compare({**sizes, "ranks": ranks}, "verl", partial(start, ranks, words), args))
                every[-1] |= {"differences": largest_differences(Path(folder), sizes)}
                every[-1]["difference"] = every[-1]["differences"]["shared"]
            show(
                every[-1],
                "{prompt}+{response} tokens, {prompts} prompts with {responses} responses, {ranks} ranks",
                "verl",
            )
            print("from fp32: verl {verl's:.1e}, shared {ours:.1e}".format(**every[-1]["differences"]))
    if args.out:
        args.out.write_text(json.dumps(every, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
