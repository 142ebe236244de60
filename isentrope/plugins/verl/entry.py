"""What verl imports by itself (`verl.plugins`): it makes the trainer known to verl."""

from isentrope.plugins.verl import register

NAME = register()
