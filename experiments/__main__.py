"""`python -m experiments STUDY [flags]`: run a study, or go on with it; `reproduce --scale STUDY` does the same."""

from dph.process.interrupts import CommandInterrupts
from dph.process.progress import keep_streams


def main() -> None:
    """Run the command line. Signals and closed streams are handled before the libraries are loaded, which takes
    seconds."""
    with CommandInterrupts():
        keep_streams()
        from experiments.command import run

        run()


if __name__ == "__main__":
    main()
