"""The audit, and making text printable."""
