"""DPH-RL inside verl: a plug-in through verl's own registries (trainer, reward function, Hydra configuration), no fork.

`dph verl` writes a launch, with data, scripts and evaluation. The files:

    plugin    the entry point that verl loads in every process
    settings  the block `dph` of verl's configuration, and the objective that it makes with verl's own settings
    trainer   driver: trainer modes with whole groups (shared_prefix_sync), and with our objective too (dph_sync)
    transfer  driver: verdicts, DAPO's filter of groups, and stored responses, in verl's TransferQueue
    ordering  driver: which mini-batch of which rank a row goes to
    worker    training processes: the objective as verl's loss, with denominators over all ranks
    engine    training processes: prompts computed once for all of their responses
    reward    reward processes: our verifiers as a reward function
    data      problems as verl's Parquet
    launch    `dph verl`, with launch_config (verl's configuration) and sizes (the layout)
"""

from dph.integrations.verl.launch import Launch, preset_launch, run_launch, write_launch

__all__ = ["Launch", "preset_launch", "run_launch", "write_launch"]
