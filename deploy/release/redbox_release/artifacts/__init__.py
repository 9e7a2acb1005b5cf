"""The files of a release, each the same bytes from the same commit."""
