"""Who comes in, and with which rights: people and their roles, agents and their tokens.

``memoryhub.core.permissions`` says what an act needs; here is who has it. ``tokens`` needs no more than hub.db, because
the MCP server over HTTP asks it too; ``roles`` and ``people`` need Django's users.
"""
