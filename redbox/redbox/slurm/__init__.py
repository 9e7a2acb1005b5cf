"""Slurm as a workload manager, through its command-line tools.

    text        the formats of Slurm's text: records, states, times, sizes, messages, options, scripts
    commands    one module a command: the argument list, and the parser of exactly the fields that it asks for
    views       rows of those parsers to jobs and partitions
    submit      from a request to sbatch's answer

`text`, `commands` and `views` are pure. `command_runner` runs commands as a user; `slurm_manager` is the
`WorkloadManager` made of all that.
"""
