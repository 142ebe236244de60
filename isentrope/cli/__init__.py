"""The command line: one small file per command, heavy imports inside the commands."""
