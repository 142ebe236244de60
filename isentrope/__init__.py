"""Isentrope: reinforcement learning for multi-turn LLM agents, with the policy's entropy in view and under control."""

__version__ = "0.2.0"
