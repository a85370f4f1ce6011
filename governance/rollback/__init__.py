"""Roll back what a session, client or period of time did: quarantine it, or undo it."""
