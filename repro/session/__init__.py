"""The record of a search: the workspace, the journal (the only truth), and the git history as its projection."""
