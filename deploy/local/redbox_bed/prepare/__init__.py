"""What a bed is given for what people type: the pages for users, and a Slurm in pods."""
