"""The near-perfect set D_pef (§4.1): the partition, the stored responses, and the checks before training uses them.

`partition` decides which prompts are explored and which are rehearsed. `store` reads, writes and orders stored
responses. `presampled` is a finished pre-sampling as training reads it. `check` compares a pre-sampling with the policy
that training starts from.
"""
