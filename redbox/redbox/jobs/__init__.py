"""Jobs: what becomes of a request, from its journaled intent to its final state, exactly once.

`service.Jobs` is the face; `journal` is what survives a crash, `ledger` the one way to change a record,
`submits` and `doubts` bring a job to the workload manager once, `polling` keeps the records true. Who calls
is settled before (`callers`), how Slurm is spoken to behind (`workload`).
"""
