"""Starts the program `redbox`, or says which extra it lacks. What it can do is in `cli`."""

import sys


def main() -> None:
    """Run the command line; without the extra `server` there is none."""
    try:
        from redbox.cli import app

        app()
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "redbox":
            raise
        sys.exit(f"redbox: {missing.name} is not installed: run pip install 'red-box[server]'")


if __name__ == "__main__":
    main()
