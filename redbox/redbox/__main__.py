"""Starts the program `redbox`, or reports the missing extra."""

import sys


def main() -> None:
    """Run the command line, which needs the extra `server`."""
    try:
        from redbox.cli import app

        app()
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "redbox":
            raise
        cure = "install red-box's wheel with the extra server: pip install 'WHEEL[server]'"
        sys.exit(f"redbox: the Python package {missing.name} is not installed; {cure}")


if __name__ == "__main__":
    main()
