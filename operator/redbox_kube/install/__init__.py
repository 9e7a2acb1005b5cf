"""What installation hooks run: upgrade of CRDs, many operations in parallel."""
