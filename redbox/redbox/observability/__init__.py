"""The log, the audit, request ids, and making text printable."""
