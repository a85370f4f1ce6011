"""Django's SQLite backend with fair waiting, batched inserts and the hub's pragmas."""
