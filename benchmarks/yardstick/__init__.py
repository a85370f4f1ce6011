"""One yardstick for memory servers: the same documents, questions and accidents for each, over MCP, without a key."""
