"""What can be said of invented people, towns, firms, contests and books, in a passage and in a question.

A relation leads from a subject to a value: another thing (then it can be asked through: "the founder of …"), or a
plain one such as a year. In the templates {x} is the subject and {y} the value.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Relation:
    subject: str  # the kind of thing that it is said of
    name: str
    value: str  # the kind of thing that the value is; or year, trade, river, ...: a plain value
    sentences: tuple[str, ...]
    questions: tuple[str, ...]
    phrase: str = ""  # the value in words, if it is a thing


RELATIONS = (
    Relation(
        "person", "birthplace", "town",
        ("{x} was born in the town of {y}.", "{x} is a native of {y}."),
        ("In which town was {x} born?", "Where was {x} born?"),
        "the town where {x} was born",
    ),
    Relation(
        "person", "birth", "year",
        ("{x} was born in the year {y}.", "{x} came into the world in {y}."),
        ("In which year was {x} born?", "When was {x} born?"),
    ),
    Relation(
        "person", "trade", "trade",
        ("{x} earned a living as a {y}.", "By trade {x} was a {y}."),
        ("What was the trade of {x}?", "How did {x} earn a living?"),
    ),
    Relation(
        "person", "employer", "firm",
        ("{x} was on the payroll of {y} for many years.", "{x} worked for {y}."),
        ("Which firm did {x} work for?", "Who employed {x}?"),
        "the firm that {x} worked for",
    ),
    Relation(
        "town", "river", "river",
        ("The river {y} runs through {x}.", "{x} lies on the river {y}."),
        ("Which river runs through {x}?", "Which river flows past {x}?"),
    ),
    Relation(
        "town", "region", "region",
        ("{x} is a market town in the region of {y}.", "{x} belongs to the region of {y}."),
        ("In which region is {x}?", "Which region is {x} a part of?"),
    ),
    Relation(
        "town", "mayor", "person",
        ("The mayor of {x} is {y}.", "{x} is governed by its mayor, {y}."),
        ("Who is the mayor of {x}?", "Who governs {x}?"),
        "the mayor of {x}",
    ),
    Relation(
        "firm", "founder", "person",
        ("{x} was founded by {y}.", "{x} is the work of its founder, {y}."),
        ("Who founded {x}?", "Who was the founder of {x}?"),
        "the founder of {x}",
    ),
    Relation(
        "firm", "seat", "town",
        ("{x} has its seat in {y}.", "The head office of {x} is in {y}."),
        ("Where does {x} have its seat?", "In which town is the head office of {x}?"),
        "the town where {x} has its seat",
    ),
    Relation(
        "firm", "opening", "year",
        ("{x} opened its doors in {y}.", "The first day of business of {x} was in {y}."),
        ("In which year did {x} open its doors?", "When did {x} begin its business?"),
    ),
    Relation(
        "firm", "product", "product",
        ("{x} makes {y}.", "{x} is known for its {y}."),
        ("What does {x} make?", "What is made by {x}?"),
    ),
    Relation(
        "contest", "place", "town",
        ("{x} was held in {y}.", "{x} took place in {y}."),
        ("Where was {x} held?", "Which town was host to {x}?"),
        "the town that was host to {x}",
    ),
    Relation(
        "contest", "date", "year",
        ("{x} goes back to the year {y}.", "The year of {x} was {y}."),
        ("In which year was {x} held?", "When was {x} held?"),
    ),
    Relation(
        "contest", "winner", "person",
        ("{x} was won by {y}.", "The prize of {x} went to {y}."),
        ("Who won {x}?", "Who took the prize of {x}?"),
        "the winner of {x}",
    ),
    Relation(
        "book", "author", "person",
        ("{x} was written by {y}.", "{x} is a novel by {y}."),
        ("Who wrote {x}?", "Who is the author of {x}?"),
        "the author of {x}",
    ),
    Relation(
        "book", "publication", "year",
        ("{x} appeared in {y}.", "{x} was first printed in {y}."),
        ("In which year did {x} appear?", "When was {x} first printed?"),
    ),
    Relation(
        "book", "setting", "town",
        ("{x} is set in {y}.", "The story of {x} unfolds in {y}."),
        ("In which town is {x} set?", "Where does the story of {x} unfold?"),
        "the town in which {x} is set",
    ),
)  # fmt: skip

BY_SUBJECT = {
    kind: tuple(r for r in RELATIONS if r.subject == kind) for kind in dict.fromkeys(r.subject for r in RELATIONS)
}
TRADES = (
    "bell founder", "bookbinder", "cartographer", "clockmaker", "cooper", "ferryman", "glazier", "lamplighter",
    "lute maker", "mason", "paper maker", "potter", "rope maker", "saddler", "shipwright", "tanner", "thatcher",
    "tinsmith", "weaver", "wheelwright",
)  # fmt: skip
PRODUCTS = (
    "barometers", "brass hinges", "copper kettles", "fishing nets", "fountain pens", "garden shears", "harness bells",
    "ink", "leather gloves", "linen sails", "oil lamps", "organ pipes", "pocket knives", "porcelain cups", "rain coats",
    "sewing needles", "ship lanterns", "straw hats", "tin soldiers", "wax candles",
)  # fmt: skip
