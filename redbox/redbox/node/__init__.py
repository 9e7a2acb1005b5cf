"""What the programs that run alone share: modules that are joined into those that use them, and how."""
