"""A task: sort three digits. The verifier `ends_with` judges its problems."""

import random

from dph.tasks import register_task
from dph.types import Problem


@register_task("sorting")
class Sorting:
    def problems(self, split):
        rng = random.Random(f"sorting {split}")
        rows = [rng.sample("123456789", 3) for _ in range(64)]
        return [
            Problem(f"{split}/{i}", f"sort {' '.join(r)} :", " ".join(sorted(r)), "ends_with")
            for i, r in enumerate(rows)
        ]

    def demonstrations(self, count, seed):
        rows = [random.Random(seed + i).sample("123456789", 3) for i in range(count)]
        return [{"prompt": f"sort {' '.join(r)} :", "response": " " + " ".join(sorted(r))} for r in rows]

    def style(self, problem, response):
        return None
