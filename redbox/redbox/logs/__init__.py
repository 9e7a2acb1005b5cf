"""Reading what jobs write, while they write it: from any offset, by any number of readers, at little cost.

`tail` looks at one file for all who follow it; `generations` tells one run's file from the next; `pacing`
says how often to look; `service` is what HTTP asks.
"""
