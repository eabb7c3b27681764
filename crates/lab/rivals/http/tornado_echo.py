"""The rival `tornado` of `touchline-lab http`: one process of Tornado. Prints its address."""

import asyncio

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler


class Echo(RequestHandler):
    def get(self):
        self.set_header("Content-Type", "text/xml")
        self.write(f"<http_test><value>{self.get_argument('value', '')}</value></http_test>")


async def main():
    [socket] = bind_sockets(0, "127.0.0.1", backlog=4096)
    HTTPServer(Application([("/", Echo)])).add_sockets([socket])
    print(f"127.0.0.1:{socket.getsockname()[1]}", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
