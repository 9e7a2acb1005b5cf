"""The runner's own program, which runs as the user on the first node of a pod's job.

Standard library only, Python 3.6 and newer, since compute nodes have old ones. These modules are never
imported there: `redbox.runner.program_source` joins them to one file. So no two of them define the same name,
and they import each other by `from redbox.runner.program.X import name` only.
"""
