"""Reads baselines and scenarios, derives the minimal command from a production command, and names what differs."""
