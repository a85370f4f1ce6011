"""Serve MCP on standard input and output, with the options after this file's name."""

import sys

from memoryhub.cli import main

sys.exit(main(["memory-hub", "mcp", *sys.argv[1:]]))
