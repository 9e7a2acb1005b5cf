"""The ends that no runner reports: pods that are being deleted, and jobs whose pods are gone."""
