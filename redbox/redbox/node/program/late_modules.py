"""Stand-ins for imports in a joined program, whose start does not wait for what it may never use."""


class LateModule:
    """A module that is imported when something of it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        value = getattr(__import__(self._name), attribute)
        setattr(self, attribute, value)
        return value


class Annotation:
    """A name of typing, which only annotations use."""

    def __getitem__(self, item: object) -> "Annotation":
        return self
