"""Schema registry with Confluent's REST API, which can be down, slow or wrong.

with SchemaRegistry() as registry:
    number = registry.add("orders-value", '{"type": "string"}')
"""

from __future__ import annotations

import json
import ssl
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from uuid import UUID, uuid5

from tests.support.otlp_collector import QuietServer

SPACE = UUID(int=7)


class Stored(NamedTuple):
    """Schema with its id."""

    id: int
    text: str
    kind: str
    references: list[dict[str, Any]]

    @property
    def guid(self) -> str:
        return str(uuid5(SPACE, f"{self.kind} {self.text}"))

    def shown(self) -> dict[str, Any]:
        found: dict[str, Any] = {"schema": self.text, "guid": self.guid}
        if self.kind != "AVRO":
            found["schemaType"] = self.kind
        return {**found, "references": self.references} if self.references else found


class SchemaRegistry:
    """Registry at a port of its own. `replies`: a status and body for paths, in place of the true ones. `gate`:
    requests wait until it is set. `requests`: the paths so far. `user`: required user name and password."""

    def __init__(self, tls: ssl.SSLContext | None = None, user: str = "") -> None:
        self.schemas: dict[int, Stored] = {}
        self.subjects: dict[str, list[int]] = {}
        self.replies: dict[str, tuple[int, bytes]] = {}
        self.requests: list[str] = []
        self.connections = 0
        self.gate = threading.Event()
        self.gate.set()
        self.authorization = f"Basic {b64encode(user.encode()).decode()}" if user else None
        self.tls, self.port = tls, 0
        self.server: QuietServer | None = None

    def __enter__(self) -> SchemaRegistry:
        self.up()
        return self

    def __exit__(self, *problem: object) -> None:
        self.gate.set()
        self.down()

    def up(self) -> None:
        self.server = QuietServer(("127.0.0.1", self.port), self.handler())
        if self.tls is not None:
            self.server.socket = self.tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def down(self) -> None:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    def add(self, subject: str, text: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
        """Add a schema to a subject, and return its id. An equal schema has the same id."""
        new = Stored(len(self.schemas) + 1, text, kind, references or [])
        found = next((one for one in self.schemas.values() if one[1:] == new[1:]), new)
        self.schemas[found.id] = found
        versions = self.subjects.setdefault(subject, [])
        if found.id not in versions:
            versions.append(found.id)
        return found.id

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        match method, parts:
            case "POST", ["subjects", subject, *_]:
                written = json.loads(body)
                number = self.add(
                    subject, written["schema"], written.get("schemaType", "AVRO"), written.get("references")
                )
                version = self.subjects[subject].index(number) + 1
                return 200, {"id": number, "subject": subject, "version": version, **self.schemas[number].shown()}
            case "GET", ["schemas", "ids", number] if number.isdecimal() and int(number) in self.schemas:
                return 200, self.schemas[int(number)].shown()
            case "GET", ["schemas", "ids", number, "versions"] if number.isdecimal() and int(number) in self.schemas:
                return 200, [{"subject": subject, "version": versions.index(int(number)) + 1}
                             for subject, versions in self.subjects.items() if int(number) in versions]  # fmt: skip
            case "GET", ["schemas", "guids", guid]:
                found = next((one for one in self.schemas.values() if one.guid == guid), None)
                if found is not None:
                    return 200, found.shown()
            case "GET", ["subjects", subject, "versions", version] if subject in self.subjects:
                versions = self.subjects[subject]
                at = len(versions) - 1 if version == "latest" else int(version) - 1
                if 0 <= at < len(versions):
                    found = self.schemas[versions[at]]
                    return 200, {"subject": subject, "version": at + 1, "id": found.id, **found.shown()}
        return 404, {"error_code": 40403, "message": "not found"}

    def handler(outer) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def setup(self) -> None:
                super().setup()
                outer.connections += 1

            def do_GET(self) -> None:
                outer.requests.append(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.gate.wait(30)
                if outer.authorization not in (None, self.headers.get("Authorization")):
                    status, data = 401, b"{}"
                elif self.path in outer.replies:
                    status, data = outer.replies[self.path]
                else:
                    status, found = outer.answer(self.command, self.path, body)
                    data = json.dumps(found).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/schemas/ids/1")
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Print nothing."""

        return Handler
