"""`python -m redbox_release`."""

from redbox_release.cli import main

if __name__ == "__main__":
    main()
