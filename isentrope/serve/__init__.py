"""A model behind OpenAI's chat protocol: `isentrope serve`. Requests are read in chat.py, answered in speaker.py."""
