"""Worlds that other packages hold, each behind one adapter and one extra."""
