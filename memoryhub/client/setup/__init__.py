"""Connect clients with this hub: what would change in their configuration, the change, and a trial of it."""
