"""What others get from a search: the report, the script that repeats it, the bundle that holds both."""
