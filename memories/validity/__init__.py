"""What is known for or against an entry at the moment it is given."""
