"""Attacks on the hub's promises: power cuts, damaged files, failing disks, kills.

Each module attacks real processes with real files, and checks afterwards that no acknowledged write is lost and that
the hub says what is wrong:

- ``test_power_cuts``: record what real processes write and sync, drop what was not synced, open what is left.
  ``disk`` reads recordings of strace and simulates the disk, ``workload`` is what is recorded, ``acknowledged`` what
  must still be there.
- ``test_disk_faults``: full disk, read-only disk, EIO on write, sync and read, at each door; and store errors under
  concurrent calls.
- ``test_damage``: the table of silent damage, what `doctor` must say of each kind and what repair must bring back;
  ``damaged_hub`` has the home and the ways to damage it.
- ``test_kills``: kills of processes that write to one store, of the hub, of MCP servers and of hooks.

`make test` runs a few rounds of each attack, `make torture` (``MEMORY_HUB_TORTURE=long``) many. Random choices come
from a seed, which a failing test prints; ``MEMORY_HUB_TORTURE_SEED`` repeats it. ``rounds`` has the helpers for both.
"""
