"""Backups: copies of stores that are in use, each verified when it is made and before it is put back."""
