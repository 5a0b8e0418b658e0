"""Entry point in the group `verl.plugins`: verl imports this module in every process.

If this import fails, verl logs it at debug level only, and then reports that it knows no trainer named dph_sync.
`python -m dph.integrations.verl` imports this module itself and names what is missing.
"""

import dph.integrations.verl.trainer  # noqa: F401  (registers the trainer)
