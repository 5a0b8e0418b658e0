"""DPH-RL inside verl: a plug-in through verl's own registries (trainer, reward function, Hydra configuration), no fork.

verl loads `plugin` in every process. The driver runs `trainer`, with `transfer` (verl's TransferQueue) and `ordering`;
training processes run `worker` and `engine`, reward processes `reward`. `dph verl` is `launch`, with `launch_config`
(verl's configuration), `sizes` (the layout) and `data` (problems as verl's Parquet).
"""

from dph.integrations.verl.launch import Launch, preset_launch, run_launch, write_launch

__all__ = ["Launch", "preset_launch", "run_launch", "write_launch"]
