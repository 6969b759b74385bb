"""Server of a responder: a connection is one task, which answers one request after the other, as brokers do."""

from __future__ import annotations

import trio

from kproxy.errors import KproxyError
from kproxy.wire.scan.frames import REQUEST_HEADER, Splitter, framed

from .responder import RecordingResponder
from .target import NodeAddress

READ = 1 << 16


class ResponderServer:
    """Server that listens on `address` (port 0: any) until cancelled."""

    def __init__(self, stage: RecordingResponder, address: NodeAddress) -> None:
        self.stage, self.address = stage, address

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen and serve; report the port once clients can connect. Raises OSError if it cannot listen."""
        host, port = self.address
        listeners = await trio.open_tcp_listeners(port, host=host)
        task_status.started(listeners[0].socket.getsockname()[1])
        await trio.serve_listeners(self.connection, listeners)

    async def connection(self, stream: trio.SocketStream) -> None:
        """Answer requests until the client leaves, or asks for what cannot be answered."""
        here = stream.socket.getsockname()
        splitter = Splitter(REQUEST_HEADER)
        try:
            while data := await stream.receive_some(READ):
                splitter.receive(data)
                for frame in splitter.frames():
                    reply = self.stage.reply(frame, (here[0], here[1]))
                    if reply.close:
                        return
                    if reply.frame is not None:
                        await trio.sleep(reply.wait)
                        await stream.send_all(framed(reply.frame))
        except (OSError, trio.BrokenResourceError, KproxyError):
            return
