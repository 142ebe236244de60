"""The OpenAI-compatible engine and server, against each other and against a server that misbehaves."""
