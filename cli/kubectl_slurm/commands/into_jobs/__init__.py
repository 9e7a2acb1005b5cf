"""Commands that go into running jobs: sessions, copies, forwarded ports."""
