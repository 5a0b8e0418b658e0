"""The near-perfect set D_pef: the partition, the stored responses, and the checks before training uses them (§4.1).

`partition` reads which prompts are explored and which are rehearsed, `store` reads, writes and orders the stored
responses, `check` compares a set with the policy that training starts from.
"""
