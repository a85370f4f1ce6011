#!/usr/bin/env python
"""Run a command of Memory Hub from a checkout; installed, the same is `memory-hub`."""

import sys

from memoryhub.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
