"""Starts the program `redbox-operator`, or says which extra it lacks. What it can do is in `cli`."""

import sys


def main() -> None:
    """Run the command line; without the extra `operator`, explain how to install it."""
    try:
        from redbox_operator.cli import app
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "redbox_operator":
            raise
        cure = "install what red-box's wheel needs for it: pip install 'WHEEL[operator]'"
        sys.exit(f"redbox-operator: {missing.name} is not installed: {cure}")
    app()


if __name__ == "__main__":
    main()
