"""Review: what agents write waits for a person where a project asks for it, and what she says of it."""
