"""DPH-RL inside verl: a plug-in through verl's own registries (trainer, reward function, Hydra configuration); no fork.

    python -m dph.integrations.verl actor_rollout_ref.model.path=… data.train_files=… dph.rehearsal=… dph.rows=256

`dph verl` writes such a launch with everything around it. What each file adds:

    plugin    the entry point that verl loads in every process
    trainer   driver: trainer mode `dph_sync`: judged advantages, stored rows appended to each update
    mixing    driver: which mini-batch of which rank a stored row goes to
    replay    driver: DAPO's group filter on what could be judged
    worker    training processes: denominators of both sets over all ranks
    loss      training processes: `dph.objective.Objective` on verl's tensors
    reward    reward processes: our verifiers as a reward function
    settings  the block `dph` of verl's configuration, and the objective that it makes with verl's own settings
    data      problems as verl's Parquet
    launch    `dph verl`, with launch_config (verl's configuration), launch_files (scripts) and sizes (the layout)
"""
