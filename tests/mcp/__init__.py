"""Tests of the MCP server as a process over real pipes."""
