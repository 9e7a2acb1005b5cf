"""The contract between red-box and those who call it: what travels, and the client that sends it."""
