"""Compare two answers on the command line: python -m mathequal GOLD ANSWER [--question QUESTION]."""

import argparse

from mathequal import RULES_VERSION, Answer, compare, exact, read


def described(text: str) -> str:
    """An answer's text, its kind, and its value if that is a rational number; 3 m is shown as a quantity."""
    answers = [answer for answer in (read(text, units=True), read(text)) if answer]
    answer = next((answer for answer in answers if answer.kind == "quantity"), answers[-1] if answers else None)
    return f"{text}  ({shown(answer) if answer else 'not read'})"


def shown(answer: Answer) -> str:
    """The kind of an answer, with those of its members, or its value if that is a rational number."""
    if answer.kind in ("expression", "quantity"):
        value = exact(answer.value)
        kind = "number" if answer.kind == "expression" and value is not None else answer.kind
        return kind if value is None else f"{kind} {value}"
    members = ", ".join(map(shown, answer.items))
    return f"{answer.kind} of {members}" if members else answer.kind


def main(arguments: list[str] | None = None) -> None:
    """Print whether two answers say the same, the rule that decided, and how both were read. The exit status is 0 for
    equal answers and 1 for others."""
    parser = argparse.ArgumentParser(
        prog="python -m mathequal", description="Do two mathematical answers say the same?"
    )
    parser.add_argument("gold", help="the right answer")
    parser.add_argument("answer", help="the answer that is judged")
    parser.add_argument("--question", default="", help="says which units may be left out, and which form is asked for")
    parser.add_argument("--decimals", choices=["exact", "rounded"], default="exact", help="whether a value may round")
    parser.add_argument("--version", action="version", version=f"mathequal rules {RULES_VERSION}")
    given = parser.parse_args(arguments)
    judged = compare(given.gold, given.answer, decimals=given.decimals, question=given.question)
    print(f"{'equal' if judged.equal else 'not equal'}: {judged.rule}")
    print(f"gold    {described(given.gold)}")
    print(f"answer  {described(given.answer)}")
    parser.exit(int(not judged.equal))


if __name__ == "__main__":
    main()
