"""The context pack: what an agent should know before it continues, within a token budget."""

from memories.pack import outcomes, parts, status, work
from memories.pack.service import pack_context, pack_digest, preview_pack, replay_pack

__all__ = ["pack_context", "pack_digest", "preview_pack", "replay_pack"]
