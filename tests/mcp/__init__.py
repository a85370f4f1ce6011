"""Tests of the MCP door, against the real process over real stdio."""
