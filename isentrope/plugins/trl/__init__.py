"""Entropy methods and our instruments inside TRL's GRPOTrainer: `from isentrope.plugins.trl import EntropyGRPOTrainer`.

`TaskWorld` has our task worlds play in it, and `load_tokenizer` reads the tokenizer of a folder for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isentrope.plugins.trl.trainer import EntropyGRPOTrainer
    from isentrope.plugins.trl.worlds import TaskWorld, load_tokenizer

__all__ = ["EntropyGRPOTrainer", "TaskWorld", "load_tokenizer"]

_PLACES = {"EntropyGRPOTrainer": "trainer", "TaskWorld": "worlds", "load_tokenizer": "worlds"}


def __getattr__(name: str) -> Any:
    """Tables and checks can be had without TRL; the trainer cannot."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
