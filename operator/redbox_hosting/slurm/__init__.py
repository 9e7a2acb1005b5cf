"""slurmrestd as the operator asks it: typed, bounded, and never trusted to mean yes."""
