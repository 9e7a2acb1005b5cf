"""The relay's own program, which runs as the job's user on a node of the job, in a step of the job.

Standard library only, Python 3.6 and newer. `redbox.relay.program_source` joins these modules to one file,
which is sent over the step's input. The server imports constants and pure helpers from here.
"""
