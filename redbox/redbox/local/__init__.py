"""Jobs as processes of the user who runs red-box: a workload manager for a laptop and for tests.

`local_manager` is the `WorkloadManager`; `job_store` keeps the jobs in files, which outlive the server;
`supervisor` is the process that runs one job. Jobs are described in Slurm's words, so the checks of scripts
and signals, the script of a container, and the meaning of states and exit codes are those of `redbox.slurm`.
"""
