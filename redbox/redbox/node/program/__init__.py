"""Standard library of Python 3.6 only, as the programs that these modules are joined into."""
