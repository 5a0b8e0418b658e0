"""Entry point in the group `verl.plugins`: verl imports this module in every process.

verl logs a failure here at debug level only, and then reports that it knows no trainer named dph_sync;
`python -m dph.integrations.verl` imports this module itself and says what is missing.
"""

import dph.integrations.verl.trainer  # noqa: F401  (registers the trainer)
