"""Freeze a failing vLLM deployment and reproduce it one variable at a time."""

__version__ = "0.1.0"
