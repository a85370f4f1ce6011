"""The MCP server: over stdio, over HTTP for one project (``http``), and in the hub for all (``mount``).

``front`` answers at once from a snapshot while ``serve`` imports and builds the real server in the same process;
``pump`` carries lines between the wire and the SDK, ``threads`` runs the calls, ``server`` says what is offered.
"""
