"""Studies: grids of runs as a queue, and what came of them."""
