"""Reading the output of jobs while they write it: from any offset, by any number of readers, at little cost.

The way of a line: `agent_files` reads it from the job's file by the agent of the job's user, `tail` shares it
among the readers of that file, `service` cuts one reader's response out of it, `job_logs` finds the file of a
job, and `http.routes.logs` sends it. `generations` distinguishes the file of one run from that of the next,
`pacing` limits how often files are read.
"""
