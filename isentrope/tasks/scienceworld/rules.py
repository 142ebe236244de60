"""What an agent is told about ScienceWorld."""

from __future__ import annotations

_SITUATION = (
    "You carry out one science task in a simulated house with a kitchen, a workshop, a greenhouse, a foundry and other "
    "rooms. You walk through doors, handle things, heat, cool and mix substances, measure, grow plants, and wait for "
    "things to happen. Time passes with every action that changes something. Where the task tells you to focus on "
    "something, do so with the right thing and only then: focusing on a wrong one ends the task as failed."
)
_ACTIONS = (
    ("look around", "see the room"),
    ("look at OBJ", "see a thing closely"),
    ("look in OBJ", "see what is inside"),
    ("inventory", "see what you carry"),
    ("task", "read the task again"),
    ("go to OBJ", "walk to a neighbouring room, its door must be open"),
    ("open OBJ", "a door or container"),
    ("close OBJ", ""),
    ("pick up OBJ", "carry it"),
    ("put down OBJ", ""),
    ("move OBJ to OBJ", "put it in or on another thing"),
    ("pour OBJ in OBJ", "a liquid, or what a container holds"),
    ("dunk OBJ in OBJ", "a container into a liquid"),
    ("mix OBJ", "let what a container holds react"),
    ("activate OBJ", "switch it on"),
    ("deactivate OBJ", "switch it off"),
    ("use OBJ on OBJ", "a tool, for example a thermometer on a substance"),
    ("read OBJ", ""),
    ("eat OBJ", ""),
    ("flush OBJ", ""),
    ("focus on OBJ", "say that this is the thing the task is about"),
    ("wait", "ten time steps"),
    ("wait1", "one time step"),
    ("reset task", "give up the progress and the focus so far"),
)
_ELECTRICAL = (("connect OBJ to OBJ", "wires and terminals"), ("disconnect OBJ", ""))
_TELEPORT = (("teleport to OBJ", "be in any room at once"),)


def action_forms(electrical: bool, teleport: bool) -> tuple[str, ...]:
    return tuple(form for form, _ in _forms(electrical, teleport))


def rules(electrical: bool, teleport: bool) -> str:
    """The rules of an episode. OBJ stands for a thing, as in the simulator's own list of actions."""
    listed = "; ".join(f"{form} ({words})" if words else form for form, words in _forms(electrical, teleport))
    return (
        f"{_SITUATION}\nActions, where OBJ is a thing or room that you see: {listed}. If you are asked which "
        "of several things you meant, answer with its number alone."
    )


def _forms(electrical: bool, teleport: bool) -> tuple[tuple[str, str], ...]:
    return _ACTIONS + (_ELECTRICAL if electrical else ()) + (_TELEPORT if teleport else ())
