"""Runs in a job: writes its log, then serves bytes. Arguments: its port, and the log's lines of 100 bytes.

A connection says `give N` and gets N bytes, or `take N`, is answered `go`, sends N bytes and gets `ok`.
"""

import os
import socketserver
import sys

LINE = b"x" * 99 + b"\n"
BLOCK = 10_000
"""Lines that are written at once."""


class Transfer(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        asked = self.rfile.readline().split()
        size = int(asked[1])
        if asked[0] == b"give":
            piece = bytes(1 << 20)
            while size:
                size -= self.connection.send(piece[:size])
        else:
            self.wfile.write(b"go\n")
            while size:
                received = len(self.rfile.read1(min(size, 1 << 20)))
                if not received:
                    return
                size -= received
            self.wfile.write(b"ok\n")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    with Server(("127.0.0.1", int(sys.argv[1])), Transfer) as server:
        lines = int(sys.argv[2])
        while lines:
            block = min(lines, BLOCK)
            sys.stdout.buffer.write(LINE * block)
            lines -= block
        sys.stdout.buffer.flush()
        os.close(1)  # the log is whole: nothing is added to it
        server.serve_forever()
