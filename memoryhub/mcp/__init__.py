"""The MCP door over stdio.

``front`` answers at once from a snapshot while ``serve`` imports and builds the real server in the same process;
``pump`` carries lines between the wire and the SDK, ``threads`` runs the calls, ``server`` says what is offered.
"""
