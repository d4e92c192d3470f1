"""Masks secrets in text, argument lists, environments, URLs and JSON. Pure; everyone who writes uses it."""
