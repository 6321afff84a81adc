"""A hub of Hugging Face on this machine, for tests: the few requests that `datasets` makes."""

import contextlib
import hashlib
import http.server
import json
import re
import threading
from pathlib import Path

_COMMIT = "1" * 40
_FILE = re.compile(r"/datasets/([^/]+/[^/]+)/resolve/[^/]+/(.+)")
_REQUEST = re.compile(r"/api/datasets/([^/]+/[^/?]+)(?:/([a-z-]+))?.*")


class _Handler(http.server.BaseHTTPRequestHandler):
    root: Path

    def do_GET(self):
        if found := _FILE.fullmatch(self.path):
            name, file = found.groups()
            self._send_file(name, self.root / name / file)
        elif (found := _REQUEST.fullmatch(self.path)) and self._is_open(found[1]):
            files = self._files(found[1])
            asked = {"tree": files, "paths-info": files}.get(
                found[2], {"id": found[1], "sha": _COMMIT}
            )
            self._send(200, json.dumps(asked).encode())
        elif not found:
            self._send(404, b"")

    do_HEAD = do_POST = do_GET  # noqa: N815 (names of the library)

    def _is_open(self, name):
        """Whether the data set may be read; otherwise the answer is sent."""
        if (self.root / name).is_dir():
            return True
        self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
        return False

    def _files(self, name):
        return [
            {"type": "file", "oid": "2" * 40, "size": path.stat().st_size, "path": path.name}
            for path in sorted((self.root / name).iterdir())
        ]

    def _send_file(self, name, path):
        if not self._is_open(name):
            return
        headers = {"X-Repo-Commit": _COMMIT}
        if not path.is_file():
            self._send(404, b"", {**headers, "X-Error-Code": "EntryNotFound"})
            return
        content = path.read_bytes()
        self._send(200, content, {**headers, "ETag": hashlib.sha256(content).hexdigest()})

    def _send(self, status, content, headers=None):
        if length := int(self.headers.get("Content-Length", 0)):
            self.rfile.read(length)
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_arguments):
        pass


@contextlib.contextmanager
def serve(root):
    """Serves a folder `user/name` with the files of each data set, and yields the address."""
    handler = type("Handler", (_Handler,), {"root": root})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        # It looks that often whether it shall stop.
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
