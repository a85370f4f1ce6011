"""``memory-hub hook``: what a client runs at its events. Standard library only; it imports no Django."""
