"""Memories and decisions that need rechecking, and affirmations of them."""
