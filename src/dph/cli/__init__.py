"""The command line `dph`."""
