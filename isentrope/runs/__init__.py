"""The run folder. It is written and read here and nowhere else; the rest of the package asks this one."""
