"""`dph` and `python -m dph`: the command line."""

import sys

from dph.process.interrupts import CommandInterrupts
from dph.process.streams import keep_streams


def main() -> None:
    """Run the command line. Signals and closed streams are handled before the libraries are loaded, which takes
    seconds."""
    with CommandInterrupts(*sys.argv[1:2]):
        keep_streams()
        from dph.cli.main import main as run

        run()


if __name__ == "__main__":
    main()
