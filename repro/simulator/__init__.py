"""A stand-in for `vllm serve`: its command line, logs, HTTP surface and failures, on the standard library alone."""
