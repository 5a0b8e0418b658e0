"""Stages: one file for each command. Each stage reads run directories and writes one.

Every stage is a function of its settings: `stages.train.train(TrainConfig(…))` does what `dph train` does.
"""
