"""The parts that the run loop calls beside the step itself: counts, guards, evaluation, certificates.

`statistics` counts the rollouts of a step. `guards` looks at these counts before the step learns from the rollouts: it
may stop the run, or say that something seems wrong. `monitor` evaluates held-out problems, and says that pass@k has
fallen. `certifier` checks, on a certification set, how many of the problems that the base model solved are still
solved.
"""
