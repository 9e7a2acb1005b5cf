"""`python -m redbox_bed`."""

from redbox_bed.cli import main

main()
