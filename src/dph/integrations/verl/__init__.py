"""DPH-RL inside verl: a plug-in through verl's own registries (trainer, reward function, Hydra configuration), no fork.

    python -m dph.integrations.verl actor_rollout_ref.model.path=… data.train_files=… dph.rehearsal=… dph.rows=256

`dph verl` writes such a launch, with data, scripts and evaluation. The files:

    plugin    the entry point that verl loads in every process; `registration` reports its errors, which verl does not
    engine    training processes: prompts computed once for all of their responses, with rows (verl's tensors)
    grouped   driver: whole groups on each rank (with grouping), and trainer modes of verl's that do only this
    passk     driver: unbiased pass@k in the validation
    trainer   driver: trainer mode `dph_sync`: judged advantages, stored rows appended to each update
    mixing    driver: which mini-batch of which rank a stored row goes to
    replay    driver: DAPO's group filter over the responses that could be judged
    worker    training processes: denominators of both sets over all ranks
    loss      training processes: `dph.objective.Objective` on verl's tensors
    reward    reward processes: our verifiers as a reward function
    judged    driver: the verdicts of a step's responses, read back from verl
    settings  the block `dph` of verl's configuration, and the objective that it makes with verl's own settings
    defaults  what DPH-RL needs of verl's configuration, as dph_defaults.yaml
    data      problems as verl's Parquet
    launch    `dph verl`, with launch_config (verl's configuration), launch_files (scripts) and sizes (the layout)
"""

from dph.integrations.verl.launch import Launch, preset_launch, run_launch, write_launch

__all__ = ["Launch", "preset_launch", "run_launch", "write_launch"]
