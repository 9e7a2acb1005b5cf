"""Runs on a Kubernetes node: GETs, each on a connection of its own, in milliseconds, as JSON.

Arguments: host, port, how many.
"""

import http.client
import json
import sys
import time

HOST, PORT, COUNT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def request() -> float:
    began = time.perf_counter()
    connection = http.client.HTTPConnection(HOST, PORT, timeout=30)
    connection.request("GET", "/")
    connection.getresponse().read()
    connection.close()
    return (time.perf_counter() - began) * 1000


request()  # the relay is there
print(json.dumps([request() for _ in range(COUNT)]))
