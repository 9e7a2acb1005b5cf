"""The API that users see: the fields of each kind, their CRDs, statuses, and the names on their objects."""
