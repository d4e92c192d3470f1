"""The vocabulary: frozen values and pure functions, no I/O. Every other room speaks in these words."""
