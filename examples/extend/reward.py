"""A reward function: the share of the digits that are at their sorted position (see sorting.py)."""


def in_place(prompt, completion, answer, **columns):
    """The answer is "1 4 7", a completion " 1 7 4": a third of it is right. None would mean: cannot be judged."""
    given, wanted = completion.split(), answer.split()
    if len(given) != len(wanted):
        return 0.0
    return sum(one == other for one, other in zip(given, wanted, strict=True)) / len(wanted)
