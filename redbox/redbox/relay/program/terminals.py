"""The terminal of a command, at the relay's end."""

import fcntl
import select
import struct
import termios
from typing import Any, Dict


def is_hung_up(terminal: int) -> bool:
    """Whether no process has it open; one that has none yet may open it by /dev/tty."""
    poll = select.poll()
    poll.register(terminal, 0)
    return bool(poll.poll(0))


def set_terminal_size(terminal: int, size: Dict[str, Any]) -> None:
    columns, rows = (min(max(int(size.get(name, 0)), 0), 65535) for name in ("columns", "rows"))
    if columns and rows:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
