"""Measurements against named peers: what `isentrope bench` and the scripts in bench/ have in common."""
