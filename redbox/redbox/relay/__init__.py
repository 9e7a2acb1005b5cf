"""The relay: the program on a job's node that opens sessions and connections there, as one file."""
