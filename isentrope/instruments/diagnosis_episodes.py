"""What the stored episodes of a run's last step show that its numbers do not name."""

from __future__ import annotations

from collections import Counter

from isentrope.instruments.diagnosis_data import Course, Finding
from isentrope.instruments.wording import percent

REPEATED = 0.25  # share of the turns that say what the turn before said
LONGEST = 60  # characters of an action that are quoted


def episode_findings(course: Course) -> list[Finding]:
    """Actions that are given again and again. The action quoted is the model's: show it as text that is not trusted."""
    again: Counter[str] = Counter()
    turns = 0
    for episode in course.episodes:
        turns += max(0, len(episode.turns) - 1)
        for before, turn in zip(episode.turns, episode.turns[1:], strict=False):
            if turn.action is not None and turn.action == before.action:
                again[turn.action] += 1
    share = sum(again.values()) / turns if turns else 0.0
    if share < REPEATED:
        return []
    action, times = again.most_common(1)[0]
    quoted = " ".join(action.split())
    quoted = quoted if len(quoted) <= LONGEST else quoted[: LONGEST - 1] + "…"
    claim = (
        f"In the episodes of step {course.episodes_step}, {percent(share)} of the actions repeat the one before, "
        f'most often "{quoted}" ({times} times).'
    )
    evidence = {"share": share, "turns": float(turns)}
    remedy = ("entropy_bonus or higher_temperature: they help to get away from an action that changes nothing",)
    return [Finding("episodes/repeated", claim, "warning", evidence, (course.episodes_step,), remedy)]
