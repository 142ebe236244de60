"""`isentrope train`, `isentrope sft` and `isentrope rft`."""

from __future__ import annotations

from isentrope.cli.options import OutFolder, RecipeArgument, ResumeOption, SetOption
from isentrope.cli.settings import recipe_or_recorded


def train(
    recipe: RecipeArgument = None, *, out: OutFolder, sets: SetOption = None, resume: ResumeOption = False
) -> None:
    """Train a policy by reinforcement learning."""
    config = recipe_or_recorded(recipe, out if resume else None, sets)
    from isentrope.pipeline import train as run_training

    run_training(config, out, resume=resume)


def sft(recipe: RecipeArgument = None, *, out: OutFolder, sets: SetOption = None, resume: ResumeOption = False) -> None:
    """Warm a policy up on games of the world's expert."""
    config = recipe_or_recorded(recipe, out if resume else None, sets)
    from isentrope.warmup import warm_up

    warm_up(config, out, resume=resume)


def rft(recipe: RecipeArgument = None, *, out: OutFolder, sets: SetOption = None, resume: ResumeOption = False) -> None:
    """Imitate the policy's own successes: it plays, and learns from the games it solved."""
    config = recipe_or_recorded(recipe, out if resume else None, [*(sets or []), "sft.source=own"])
    from isentrope.warmup import warm_up

    warm_up(config, out, resume=resume)
