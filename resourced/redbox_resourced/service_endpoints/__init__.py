"""Services in front of pods whose ports the runner chooses."""
