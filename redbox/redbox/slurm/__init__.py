"""Slurm as a workload manager, through its command-line tools.

One module per command holds the argument list that asks for exactly the fields that its parser reads. Those
are pure; `calls` runs commands through a user's agent, and `workload` puts both together as the
`WorkloadManager`.
"""
