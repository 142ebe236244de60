"""A small house written down by hand, for tests whose answers can be worked out on paper."""

from __future__ import annotations

from isentrope.worlds.household.engine import Engine
from isentrope.worlds.household.game import Game
from isentrope.worlds.household.official import read_problem

PICK = (
    "(exists (?r - receptacle) (exists (?o - object) (and (inReceptacle ?o ?r) "
    "(objectType ?o {o}) (receptacleType ?r {r}))))"
)
HEAT = (
    "(exists (?r - receptacle) (exists (?o - object) (and (heatable ?o) (objectType ?o AppleType) "
    "(receptacleType ?r CounterTopType) (isHot ?o) (inReceptacle ?o ?r))))"
)
TWO = (
    "(exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 AppleType) (receptacleType ?r FridgeType) "
    "(inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2)) (objectType ?o2 AppleType) "
    "(receptacleType ?r FridgeType) (inReceptacle ?o2 ?r))))))"
)
LOOK = (
    "(exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot DeskLampType) "
    "(toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r))) "
    "(exists (?o - object ?a - agent) (and (objectType ?o AppleType) (holds ?a ?o)))"
)

# Fridge and drawer stand at the same location. Apple_bar_1 is in the fridge and also on the countertop.
FACTS = """
(receptacleType CounterTop_bar_1 CounterTopType) (receptacleAtLocation CounterTop_bar_1 loc_bar_1)
(receptacleType Fridge_bar_1 FridgeType) (receptacleAtLocation Fridge_bar_1 loc_bar_2) (openable Fridge_bar_1)
(receptacleType Drawer_bar_1 DrawerType) (receptacleAtLocation Drawer_bar_1 loc_bar_2)
(receptacleType Microwave_bar_1 MicrowaveType) (receptacleAtLocation Microwave_bar_1 loc_bar_3)
(openable Microwave_bar_1)
(receptacleType Sink_bar_1_bar_SinkBasin SinkBasinType) (receptacleAtLocation Sink_bar_1_bar_SinkBasin loc_bar_4)
(objectType Apple_bar_1 AppleType) (objectType Apple_bar_2 AppleType) (objectType Knife_bar_1 KnifeType)
(objectType Mug_bar_1 MugType) (objectType Spoon_bar_1 SpoonType) (objectType DeskLamp_bar_1 DeskLampType)
(objectType Sink_bar_1 SinkType)
(pickupable Apple_bar_1) (pickupable Apple_bar_2) (pickupable Knife_bar_1) (pickupable Mug_bar_1)
(pickupable Spoon_bar_1)
(cleanable Apple_bar_1) (heatable Apple_bar_1) (coolable Apple_bar_1) (sliceable Apple_bar_1)
(cleanable Apple_bar_2) (heatable Apple_bar_2) (coolable Apple_bar_2) (sliceable Apple_bar_2)
(cleanable Mug_bar_1) (heatable Mug_bar_1) (isReceptacleObject Mug_bar_1) (cleanable Knife_bar_1)
(toggleable DeskLamp_bar_1)
(inReceptacle Apple_bar_1 Fridge_bar_1) (inReceptacle Apple_bar_1 CounterTop_bar_1)
(inReceptacle Apple_bar_2 CounterTop_bar_1) (inReceptacle Knife_bar_1 CounterTop_bar_1)
(inReceptacle Mug_bar_1 CounterTop_bar_1) (inReceptacle Spoon_bar_1 Drawer_bar_1)
(inReceptacle DeskLamp_bar_1 CounterTop_bar_1) (inReceptacleObject Spoon_bar_1 Mug_bar_1)
(objectAtLocation Apple_bar_1 loc_bar_2) (objectAtLocation Apple_bar_2 loc_bar_1)
(objectAtLocation Knife_bar_1 loc_bar_1) (objectAtLocation Mug_bar_1 loc_bar_1)
(objectAtLocation Spoon_bar_1 loc_bar_2) (objectAtLocation DeskLamp_bar_1 loc_bar_1)
(objectAtLocation Sink_bar_1 loc_bar_4)
(canContain CounterTopType AppleType) (canContain CounterTopType KnifeType) (canContain CounterTopType MugType)
(canContain CounterTopType SpoonType) (canContain FridgeType AppleType) (canContain FridgeType MugType)
(canContain DrawerType SpoonType) (canContain DrawerType KnifeType) (canContain DrawerType AppleType)
(canContain SinkBasinType AppleType) (canContain MicrowaveType AppleType) (canContain MicrowaveType MugType)
(atLocation agent1 loc_bar_9)
"""


def problem(goal: str = PICK.format(o="SpoonType", r="CounterTopType"), facts: str = FACTS) -> str:
    return f"(define (problem house) (:domain alfred) (:objects agent1 - agent) (:init {facts}) (:goal (and {goal})))"


def house(goal: str = PICK.format(o="SpoonType", r="CounterTopType"), facts: str = FACTS) -> Game:
    return read_problem(problem(goal, facts), "put a spoon in countertop.", "house")


def play(engine: Engine, *commands: str) -> str:
    """Carry out commands that must all be admissible; the answer to the last one."""
    answer = ""
    for command in commands:
        assert command in engine.admissible(), (command, engine.admissible())
        answer = engine.step(command)
    return answer
