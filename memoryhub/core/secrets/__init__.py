"""Find secrets in text: rules as data, and the engine that applies them (decision 21)."""
