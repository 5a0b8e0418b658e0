"""Compare two answers on the command line: python -m mathequal GOLD ANSWER [--question QUESTION]."""

import argparse

from mathequal import RULES_VERSION, explain


def main(arguments: list[str] | None = None) -> None:
    """Print whether two answers say the same, how both were read, and the rules that decided. The exit status is 0 for
    equal answers and 1 for others."""
    parser = argparse.ArgumentParser(
        prog="python -m mathequal", description="Do two mathematical answers say the same?"
    )
    parser.add_argument("gold", help="the right answer")
    parser.add_argument("answer", help=r"the answer that is judged, or a response with a \boxed{…}")
    parser.add_argument("--question", default="", help="says which units may be left out, and which form is asked for")
    parser.add_argument("--decimals", choices=["exact", "rounded"], default="exact", help="whether a value may round")
    parser.add_argument("--version", action="version", version=f"mathequal rules {RULES_VERSION}")
    given = parser.parse_args(arguments)
    explanation = explain(given.gold, given.answer, decimals=given.decimals, question=given.question)
    print(explanation)
    parser.exit(int(not explanation.judgement.equal))


if __name__ == "__main__":
    main()
