"""Training: one step, and the run loop that repeats it.

`loop` is the step on one screen: `rollouts` draws, judges and shapes, `rows` holds what the loss needs, `update`
applies the objective to mixed mini-batches. `watch` counts, guards and warns, `monitor` evaluates held-out problems.
`run_loop` repeats the step, saves (`checkpoints`) and stops.
"""
