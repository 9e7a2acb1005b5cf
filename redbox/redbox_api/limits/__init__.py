"""Bounds on what one red-box costs its reader: the memory of an answer, and the event loop's time."""
