"""What the run loop calls beside the step itself: counts, guards, evaluation, certificates.

`statistics` counts the rollouts of a step. `guards` looks at these counts before the step learns from the rollouts: it
may stop the run, or say that something seems wrong. `monitor` evaluates held-out problems, and says that pass@k has
fallen. `certifier` checks, on a certification set, how much of what the model could do is kept.
"""
