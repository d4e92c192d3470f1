"""Starts, watches and stops servers, and ends what a killed repro left behind."""
