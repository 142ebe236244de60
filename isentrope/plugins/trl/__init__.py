"""Entropy methods inside TRL's GRPOTrainer: `from isentrope.plugins.trl import EntropyGRPOTrainer`."""

from isentrope.plugins.trl.trainer import EntropyGRPOTrainer

__all__ = ["EntropyGRPOTrainer"]
