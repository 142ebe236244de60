"""Samplers in processes of their own: the requests of one learner are answered by several engines at once. And what the
ranks of a learner need to be a group.

engine.py      an engine that hands each request to a sampler, and goes on when one of them fails; open this first
sampler.py     what a sampler does with the orders that it gets
messages.py    orders, and replies as data
transport.py   the interface between the two: start a sampler, send bytes, hear bytes
processes.py   its way on one machine: child processes and pipes
weights.py     how weights reach samplers: shared memory on CPUs, CUDA IPC on a card
group.py       the ranks of a learner as a process group (loop/ranks.py says what they do)
checks.py      whether they arrived: checksums, and a probe that both sides score
"""
