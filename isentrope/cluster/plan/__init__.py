"""How long a training step would take on cards that are not here: a simulation, from rates that were measured.

cards.py      cards by their datasheets, and what was measured on one of them
rates.py      how quickly a card does the parts of a step
costs.py      seconds of one pass of a model: read, draw, score, learn, send weights
lengths.py    the episodes of a step: turns, tokens read and written
simulate.py   the steps, event by event; open this first
timeline.py   what came out: seconds of a step, who waited for what
layouts.py    which cards learn and which sample, and the memory that each needs
choose.py     the best of them, and the settings for it

Pure functions of numbers: nothing is loaded, and torch is not imported.
"""
