from memories.services.deletion import delete_memory, restore_memory
from memories.services.revise import resolve_conflict, update_memory
from memories.services.write import write_memories, write_memory
