"""DPH-RL inside verl: a plug-in through verl's own registries (trainer, reward function, Hydra configuration), no fork.

verl loads `plugin` in every process. The driver runs `trainer`, which places rows by `ordering`; training processes run
`engine`, reward processes `reward`. `dph verl` is `launch`, with `settings` (ours and verl's configuration) and `data`
(problems as verl's Parquet); `installed` says what is missing if verl cannot import the plug-in.
"""

from dph.integrations.verl.launch import Launch, preset_launch, run_launch, write_launch

__all__ = ["Launch", "preset_launch", "run_launch", "write_launch"]
