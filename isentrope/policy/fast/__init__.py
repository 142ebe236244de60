"""The quick way on a GPU, for Llama-shaped models: what samples (engine.py) and what trains, over the same weights."""
