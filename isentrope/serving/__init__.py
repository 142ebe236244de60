"""Servers: a model behind OpenAI's chat protocol (server, chat, speaker), a task world (tasks)."""
