"""Full-text search over everything in a store that can be found."""
