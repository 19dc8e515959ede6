#!/usr/bin/env python3
"""relay.py sftp PORT DELAY_MS | relay.py tcp PORT TO DELAY_MS: a server that is so far away, there and back.

`sftp` serves files by OpenSSH's server, for `sshfs -o directport=PORT`; `tcp` passes a port on to another
one. What is sent arrives half the delay later, in order, however much is under way. Prints "ready" once it
listens.
"""

import queue
import shutil
import socket
import subprocess
import sys
import threading
import time

SERVER = next(
    (
        name
        for name in ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server")
        if shutil.which(name)
    ),
    None,
)


def pass_on(read, write, close, delay):
    """Hands what `read` returns to `write`, `delay` seconds after it came, until there is nothing more."""
    waiting = queue.Queue()

    def late():
        while (item := waiting.get()) is not None:
            due, data = item
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                write(data)
            except OSError:
                break
        close()

    threading.Thread(target=late, daemon=True).start()
    try:
        while data := read(1 << 16):
            waiting.put((time.monotonic() + delay, data))
    except OSError:
        pass
    waiting.put(None)


def serve(client, delay, port):
    """One client: an sftp server of its own, or a connection to `port`."""
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def shut(end):
        try:
            end.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    if port is None:
        child = subprocess.Popen([SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        read, write, close = child.stdout.read, child.stdin.write, child.stdin.close
    else:
        other = socket.create_connection(("127.0.0.1", port))
        other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        read, write, close = other.recv, other.sendall, lambda: shut(other)
    threading.Thread(target=pass_on, args=(client.recv, write, close, delay), daemon=True).start()
    pass_on(read, client.sendall, lambda: shut(client), delay)


def main():
    port, to = int(sys.argv[2]), int(sys.argv[3]) if sys.argv[1] == "tcp" else None
    delay = float(sys.argv[-1]) / 2000
    with socket.create_server(("127.0.0.1", port)) as listening:
        print("ready", flush=True)
        while True:
            client, _ = listening.accept()
            threading.Thread(target=serve, args=(client, delay, to), daemon=True).start()


main()
