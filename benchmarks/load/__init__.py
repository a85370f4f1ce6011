"""A team's load on one hub: clients of many projects over MCP, and a person in the admin."""
