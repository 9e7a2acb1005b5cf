"""The life of a SlurmJob: validation, attempts, status, deletion, resync."""
