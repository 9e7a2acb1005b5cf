"""The API that users see: the fields of each kind, their CRDs, conditions and problems."""
