"""Jobs: from a request's journaled intent to the job's final state, submitted exactly once.

`service.JobService` is the interface; the journal (`store`) survives a crash, `store.record_store` is the
only way to change a record, `submit` submits a job once, `poll` keeps the records up to date. Callers are
authenticated before (`callers`), Slurm is behind the interface (`core.workload_manager`).
"""
