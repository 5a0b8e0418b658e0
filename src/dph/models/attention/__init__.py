"""Attention over packed rows, in which a common prefix is stored once: four ways to compute the same function.

`split_cpu` splits it into two parts on a CPU; `varlen` does so on a GPU for 16-bit types; `flex` compiles a kernel for
the mask; `gather` copies keys and is the reference. All read one `PrefixLayout`; `implementation` chooses by trial.
"""

from dph.models.attention.choice import IMPLEMENTATIONS, Choice, choose, chosen, implementation, try_attention, using

__all__ = ["IMPLEMENTATIONS", "Choice", "choose", "chosen", "implementation", "try_attention", "using"]
