"""Entry point in the group `verl.plugins`: verl imports this module in every process.

verl reports a failure here at debug level only and then says that it knows no trainer named dph_sync;
`python -m dph.integrations.verl` imports it in the open and says what is missing.
"""

import dph.integrations.verl.trainer  # noqa: F401  (registers the trainer)
