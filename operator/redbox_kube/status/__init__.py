"""Statuses: models, conditions, problems, and the writes of them."""
