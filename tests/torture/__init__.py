"""Attacks on the hub's promises: power cuts, damaged files, failing disks, kills.

Each module attacks real processes with real files, and checks afterwards that no acknowledged write is lost and that
the hub says what is wrong:

- ``test_power_cuts``: record what real processes write and sync, drop what was not synced, open what is left.
  ``strace`` reads recordings, ``disk`` is the simulated disk, ``workload`` what is recorded, ``aftermath`` what is
  checked.
- ``test_disk_faults``: full disk, read-only disk, EIO on write, sync and read, at each door; ``faults`` injects them.
- ``test_damage``: the table of silent damage, what `doctor` must say of each kind and what repair must bring back.
- ``test_capture_kills``: kills of the hub, of MCP servers and of hooks while events are captured.
- ``test_store_errors``: store errors under concurrent calls, and kills.

`make test` runs a few rounds of each attack, `make torture` (``MEMORY_HUB_TORTURE=long``) many. Random choices come
from a seed, which a failing test prints; ``MEMORY_HUB_TORTURE_SEED`` repeats it. ``rounds`` has the helpers for both.
"""
