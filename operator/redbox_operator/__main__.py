"""Starts `redbox-operator`. The commands are in `cli`."""

from redbox_kube.runtime.program import run


def main() -> None:
    run("operator")


if __name__ == "__main__":
    main()
