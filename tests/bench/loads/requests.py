"""On a login host: GETs of a caller's own job, one after the other; prints how long each took as JSON.

python3 requests.py, with {"ca": PEM, "token": ..., "path": ..., "count": N} as stdin.
"""

import http.client
import json
import ssl
import sys
import time


def measure(ca: str, token: str, path: str, count: int) -> list[float]:
    trust = ssl.create_default_context(cadata=ca)
    connection = http.client.HTTPSConnection("127.0.0.1", 8443, context=trust, timeout=60)
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        took.append(time.perf_counter() - begun)
        if answer.status != 200:
            raise RuntimeError(f"GET {path}: {answer.status}")
    return took


if __name__ == "__main__":
    print(json.dumps(measure(**json.load(sys.stdin))))
