"""Sets of documents and questions with known answers, read from files; nothing here writes to a store."""
