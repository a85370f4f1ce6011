"""What a project's memory is worth: what packs cost, what became of them, and sessions with and without memory."""
