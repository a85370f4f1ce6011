"""What a secret looks like, as data, and the engine that finds it."""
