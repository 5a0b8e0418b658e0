"""Training: one step, and the run loop that repeats the step.

`loop` is the step on one screen. `rollouts` draws prompts and judges responses, `advantages` makes judged groups rows
with advantages, `rows` holds what the loss needs, and `update` applies the objective to mixed mini-batches.
`callbacks` counts, guards, evaluates and certifies. `run_loop` repeats the step, saves (`checkpoints`) and stops.
"""
