"""What `run.track` asks for: the experiment trackers that a run's numbers also go to."""

from __future__ import annotations

TRACKERS = ("wandb", "mlflow", "trackio")


def trackers_of(track: str) -> tuple[str, ...]:
    """The names, each once: `wandb, mlflow`."""
    return tuple(dict.fromkeys(name.strip() for name in track.split(",") if name.strip()))


def track_problem(track: str) -> str | None:
    unknown = [name for name in trackers_of(track) if name not in TRACKERS]
    if not unknown:
        return None
    return f'run.track = "{track}": expected {", ".join(TRACKERS)}, several with commas, or nothing'
