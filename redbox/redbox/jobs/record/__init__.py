"""The record of one job: its states, its mark, how it is stored and shown. Pure."""
