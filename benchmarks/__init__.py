"""Developers' measurements: how fast the hub is, and how well it finds. Not part of the wheel."""
