"""A notebook in small: a server with a page and a WebSocket, a proxy that goes by host names, and a browser.

Each is a program of the standard library, for the bed's hosts: the server runs in a job; the proxy runs on a
node of Kubernetes, as an Ingress controller does.
"""

SERVER = """\
import base64, hashlib, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Notebook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if "Upgrade" in self.headers:
            return self.echo()
        page = f"{os.environ['SLURM_JOB_ID']} for {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def echo(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        accepted = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_header("Sec-WebSocket-Accept", accepted)
        self.end_headers()
        self.close_connection = True
        while (head := self.rfile.read(2)) and head[0] == 0x81:
            mask, masked = self.rfile.read(4), self.rfile.read(head[1] & 127)
            said = bytes(byte ^ mask[at % 4] for at, byte in enumerate(masked))
            self.wfile.write(bytes([0x81, len(said)]) + said)

ThreadingHTTPServer(("127.0.0.1", 18889), Notebook).serve_forever()
"""
SERVER_PORT = 18889

PROXY = """\
import asyncio, sys

ROUTES = dict(word.split("=") for word in sys.argv[2:])  # host name -> address of a Service

async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()

async def proxied(reader, writer):
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    named = next(line for line in head.split(b"\\r\\n") if line.startswith(b"Host:"))
    host = named.split(b":")[1].strip().decode()
    if host not in ROUTES:
        writer.write(b"HTTP/1.1 404 Not Found\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
    else:
        there, back = await asyncio.open_connection(ROUTES[host], 80)
        back.write(head)
        await asyncio.gather(copy(reader, back), copy(there, writer))
        back.close()
    writer.close()

async def serve():
    server = await asyncio.start_server(proxied, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()

asyncio.run(serve())
"""

BROWSER = """\
import os, socket, sys

port, host = int(sys.argv[1]), sys.argv[2]
with socket.create_connection(("127.0.0.1", port), 20) as connection:
    connection.sendall(
        f"GET /echo HTTP/1.1\\r\\nHost: {host}\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
        "Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n".encode()
    )
    stream = connection.makefile("rb")
    print(stream.readline().decode().split()[1])
    while stream.readline().strip():
        pass
    for said in (b"x = 1", b"print(x)"):
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(said))
        connection.sendall(bytes([0x81, 0x80 | len(said)]) + mask + masked)
        size = stream.read(2)[1]
        print(stream.read(size).decode())
"""
