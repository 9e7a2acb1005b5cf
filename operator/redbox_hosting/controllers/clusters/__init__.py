"""The controller of Controllers: slurmctld, its configuration, and the operator's way to slurmrestd."""
