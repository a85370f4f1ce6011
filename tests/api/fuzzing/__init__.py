"""Configuration of schemathesis."""
