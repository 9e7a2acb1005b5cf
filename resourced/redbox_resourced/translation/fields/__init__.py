"""Each field of a Pod that this version has a rule for, and the walk that finds all others."""
