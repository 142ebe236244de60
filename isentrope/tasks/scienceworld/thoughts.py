"""A sentence for each action of a known solution. It says what is done and, where the action tells, what for.

The solution comes from the simulator, without reasons. So a thought claims no more than can be read off the action.
"""

from __future__ import annotations

import re

_WORDS = (
    (r"teleport to (.+)", "I go straight to the {0}."),
    (r"go (?:to )?(.+)", "I go on to the {0}."),
    (r"open (door .+)", "To get through I open the {0}."),
    (r"open (.+)", "I open the {0}."),
    (r"close (.+)", "I close the {0}."),
    (r"look around", "I look at what is in this room."),
    (r"(?:look at|examine) (.+)", "I check the {0}."),
    (r"look in (.+)", "I check what is in the {0}."),
    (r"inventory", "I check what I carry."),
    (r"read (.+)", "I read the {0}."),
    (r"pick up (.+)", "I need the {0}. I take it along."),
    (r"(?:put down|drop) (.+)", "I put the {0} down here."),
    (r"move (.+) to (.+)", "I put the {0} in or on the {1}."),
    (r"pour (.+) in(?:to)? (.+)", "I pour the {0} into the {1}."),
    (r"dunk (.+) in(?:to)? (.+)", "I fill the {0} from the {1}."),
    (r"mix (.+)", "I mix what is in the {0}."),
    (r"activate (.+)", "I switch the {0} on."),
    (r"deactivate (.+)", "I switch the {0} off."),
    (r"use (.+) on (.+)", "I use the {0} on the {1}."),
    (r"connect (.+) to (.+)", "For the circuit I connect the {0} to the {1}."),
    (r"disconnect (.+)", "I disconnect the {0}."),
    (r"focus on (.+)", "The {0} is what the task asks for. I focus on it."),
    (r"eat (.+)", "I eat the {0}."),
    (r"flush (.+)", "I flush the {0}."),
    (r"wait1", "This takes a little time. I wait one step."),
    (r"wait.*", "This takes time. I wait."),
    (r"\d+", "Several things could be meant. I choose number {whole}."),
)
_TASK = re.compile(r"Your task is to (.+?)(?:\.\s|\.?$)", re.DOTALL)


def thought(action: str, goal: str, first: bool) -> str:
    """The first one also says what the task is."""
    said = next((_filled(match, words) for form, words in _WORDS if (match := re.fullmatch(form, action))), "")
    said = said or f"Next: {action}."
    task = _TASK.search(goal) if first else None
    return f"I am to {' '.join(task[1].split())}. {said}" if task else said


def _filled(match: re.Match[str], words: str) -> str:
    return words.format(*(part.removeprefix("the ") for part in match.groups()), whole=match[0])
