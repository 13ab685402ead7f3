"""Exit with 0 if the side in this container is alive: GET /health, else a connection to the cloud.

The ports are those of the environment, DRAGONRT_HTTP_PORT and DRAGONRT_PORT, or the usual ones.
"""

import os
import socket
import ssl
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection

HERE, LONGEST_S = "127.0.0.1", 4.0


def serves(port: int) -> bool:
    """Whether an HTTP server on that port says that it is alive, with TLS or without."""
    unverified = ssl._create_unverified_context()  # it is this container's own certificate
    for connection in (
        HTTPConnection(HERE, port, timeout=LONGEST_S),
        HTTPSConnection(HERE, port, timeout=LONGEST_S, context=unverified),
    ):
        try:
            connection.request("GET", "/health", headers={"Host": "localhost"})
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            continue
        finally:
            connection.close()
    return False


def listens(port: int) -> bool:
    """Whether somebody takes connections on that port."""
    try:
        socket.create_connection((HERE, port), LONGEST_S).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    http = int(os.environ.get("DRAGONRT_HTTP_PORT", "8080"))
    sys.exit(not (serves(http) or listens(int(os.environ.get("DRAGONRT_PORT", "7070")))))
