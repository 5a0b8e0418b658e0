"""`python -m dph`: the command line."""

from dph.cli.main import main

main()
