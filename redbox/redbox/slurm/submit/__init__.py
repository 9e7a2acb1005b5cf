"""From a job's request to sbatch's answer: `submitter` prepares the call, `sbatch_runner` runs it once."""
