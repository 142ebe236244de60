"""Entropy methods inside TRL's GRPOTrainer: `from isentrope.plugins.trl import EntropyGRPOTrainer`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isentrope.plugins.trl.trainer import EntropyGRPOTrainer

__all__ = ["EntropyGRPOTrainer"]


def __getattr__(name: str) -> Any:
    """Tables and checks can be had without TRL; the trainer cannot."""
    if name != "EntropyGRPOTrainer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from isentrope.plugins.trl import trainer

    return trainer.EntropyGRPOTrainer
