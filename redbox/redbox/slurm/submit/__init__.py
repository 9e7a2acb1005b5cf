"""From a job's request to sbatch's answer: script, container, credentials."""
