"""Jobs as processes of the user who runs red-box: a workload manager for a laptop and for tests.

`workload` is the `WorkloadManager`; `store` keeps the jobs in files, so that they outlive the server;
`supervisor` is the process that runs one job.
"""
