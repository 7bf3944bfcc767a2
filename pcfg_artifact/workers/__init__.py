"""Processes beside the main one: pools, launching, training, and what they keep on disk."""
