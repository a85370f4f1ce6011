"""The ground floor: stores, the event log, sanitising, errors, budgets. Imports no other part of the hub."""
