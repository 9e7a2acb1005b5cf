"""What all of the bed shares: its plan, its places, errors, progress, processes of the machine."""
