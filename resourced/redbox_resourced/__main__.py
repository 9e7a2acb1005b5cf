"""Starts the program `redbox-resourced`, or says which extra it lacks. What it can do is in `cli`."""

import sys


def main() -> None:
    """Run the command line; without the extra `resourced` there is none."""
    try:
        from redbox_resourced.cli import app
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "redbox_resourced":
            raise
        sys.exit(f"redbox-resourced: {missing.name} is not installed: run pip install 'red-box[resourced]'")
    app()


if __name__ == "__main__":
    main()
