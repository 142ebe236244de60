"""Entropy methods inside verl: loaded by verl itself through the entry point group `verl.plugins`.

It registers the trainer `isentrope_sync` (`trainer.v1.trainer_mode=isentrope_sync`). Where verl's own trainer cannot be
imported, as without its TransferQueue, nothing is registered and verl is left as it is.
"""

from __future__ import annotations

import logging

from isentrope.core.errors import TaskError

LOG = logging.getLogger("isentrope")


def register() -> str:
    """Make the trainer known to verl; its name, or an empty text where verl's own is not here."""
    try:
        from isentrope.plugins.verl.trainer import NAME, register_with_verl

        register_with_verl()
    except (ImportError, TaskError) as error:
        LOG.debug(f"isentrope.plugins.verl: no trainer registered: {error}")
        return ""
    return NAME
