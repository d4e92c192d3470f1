"""Freezes the scene: collectors, one file each, whose facts carry their evidence; written redacted, never twice."""
