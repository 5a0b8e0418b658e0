"""Write the supervised rows from which a small model learns Spider's SQL in five solution styles.

    python examples/spider_small/prepare.py --root DATA/spider --out sft.jsonl --count 20000

Then: dph sft --data sft.jsonl …, and the task spider_small (option root) for the other stages.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

from dph.tasks.spider.small import SPLITS, SpiderSmall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="Spider's folder: questions, tables.json, database/")
    parser.add_argument("--out", default="sft.jsonl", help="file to write")
    parser.add_argument("--count", type=int, default=20_000, help="rows to write")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument("--max-prompt-chars", type=int, default=600, help="longest prompt that is kept")
    parser.add_argument("--template-share", type=float, default=0.5, help="share of generated questions")
    given = parser.parse_args()
    task = SpiderSmall(root=given.root, max_prompt_chars=given.max_prompt_chars, template_share=given.template_share)
    for split in SPLITS:
        kept = len(task.problems(split))
        left_out = ", ".join(f"{count} {reason}" for reason, count in task.dropped[split].most_common())
        print(f"{split}: {kept} problems; left out: {left_out or 'none'}")
    rows = task.demonstrations(given.count, given.seed)
    Path(given.out).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    styles = Counter(row["style"] for row in rows)
    print(f"{given.out}: {len(rows)} rows; {', '.join(f'{n} {style}' for style, n in styles.most_common())}")


if __name__ == "__main__":
    main()
