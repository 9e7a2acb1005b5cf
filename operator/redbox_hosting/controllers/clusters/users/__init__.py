"""A cluster's Unix users: what pods get of their lines, and their homes."""
