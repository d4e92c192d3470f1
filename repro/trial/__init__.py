"""Carries trials out on a machine and drives any search with their answers."""
