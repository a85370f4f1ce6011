#!/usr/bin/env python
"""Run a command of Memory Hub from a checkout; installed, the same is `memory-hub`."""

import sys

from memoryhub.cli import main

if __name__ == "__main__":
    if sys.argv[1:2] == ["test"]:
        from tests.home import use_temporary_home

        use_temporary_home()
    sys.exit(main(sys.argv))
