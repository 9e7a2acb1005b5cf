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
        cure = "install what red-box's wheel needs for it: pip install 'WHEEL[server]'"
        sys.exit(f"redbox: {missing.name} is not installed: {cure}")


if __name__ == "__main__":
    main()
