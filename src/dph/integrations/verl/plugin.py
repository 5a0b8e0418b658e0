# pyright: reportMissingImports=false
"""Entry point in the group `verl.plugins`: verl imports this module in every process.

If this import fails, verl logs it at debug level only, and then reports that it knows no trainer named dph_sync.
`check_registered` of the module `installed` imports this module itself and says what is wrong; training and `dph verl`
call it.
"""

import logging

import verl

if verl.__version__ != "0.9.1":  # its trainer, registries and configuration change between releases
    raise ImportError(
        f"dph.integrations.verl works with verl 0.9.1, but verl {verl.__version__} is installed; in an environment of "
        "its own run: pip install verl==0.9.1"
    )

import dph.integrations.verl.trainer  # noqa: F401  (registers the trainer modes, and the engine for shared prompts)

if not (_log := logging.getLogger("dph")).handlers:  # what vLLM's server imports lets only errors pass the root logger
    _log.addHandler(logging.StreamHandler())
    _log.setLevel(logging.WARNING)
_log.propagate = False  # verl's handlers of the root logger would print each message again
