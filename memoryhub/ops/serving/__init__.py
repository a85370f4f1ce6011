"""The processes and threads of `memory-hub serve`."""
