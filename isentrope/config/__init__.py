"""Configuration: frozen dataclasses, TOML recipes, `--set key=value`."""
