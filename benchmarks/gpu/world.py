"""The base model and rehearsal set of the embedded world, as `dph demo --smoke` makes them.

python -m benchmarks.gpu.world FOLDER [STEPS]    # of the supervised start; by default those of the smoke run
"""

import sys
from pathlib import Path

from benchmarks._support.embedded import prepare

if __name__ == "__main__":
    prepare(Path(sys.argv[1]), smoke=True, **({"steps": int(sys.argv[2])} if sys.argv[2:] else {}))
