"""The ends that no runner reports: jobs whose pods are gone."""
