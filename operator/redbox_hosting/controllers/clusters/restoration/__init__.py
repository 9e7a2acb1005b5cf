"""A Controller that begins with a backup."""
