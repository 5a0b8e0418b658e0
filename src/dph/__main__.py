"""`dph` and `python -m dph`: the command line."""

from dph.process.interrupts import CommandInterrupts


def main() -> None:
    """Run the command line. Signals are handled before the libraries are loaded, which takes seconds."""
    with CommandInterrupts():
        from dph.cli.main import main as run

        run()


if __name__ == "__main__":
    main()
