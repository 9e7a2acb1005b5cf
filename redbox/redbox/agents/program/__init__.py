"""The agent's own program, which runs as the user on a login node.

Standard library only, Python 3.6 and newer, since login nodes have old ones. These modules are never imported
there: `redbox.agents.program_source` joins them to one file, which sudo allows and ssh sends. So no two of
them define the same name, and they import each other by `from redbox.agents.program.X import name` only. Of
other packages they import what is joined with them: `redbox.node`, and `redbox_shared.credit`.
The server and `local` import constants and pure helpers from here.
"""
