"""Django's SQLite backend with a SQLite that is safe in WAL mode, fair waiting and the hub's pragmas."""
