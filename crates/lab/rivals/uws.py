# A rival: the publish/subscribe of uWebSockets, called from its Python binding (pip install socketify).
# Usage: python uws.py PORT
# A text frame with a channel's name subscribes, and the first frame from the server acknowledges it.
# POST /api/publish takes the same request as Touchline.
# Only publishing and subscribing run Python code; uWebSockets alone writes to subscribers.
import json
import sys

from socketify import App, AppListenOptions, CompressOptions, OpCode

app = App()


def subscribe(ws, message, opcode):
    ws.subscribe(message if isinstance(message, str) else message.decode())
    ws.send("{}", OpCode.TEXT)


async def publish(response, request):
    event = json.loads((await response.get_data()).getvalue())
    text = json.dumps({"push": {"channel": event["channel"], "pub": {"data": event["data"]}}}, separators=(",", ":"))
    app.publish(event["channel"], text, OpCode.TEXT, False)
    response.write_header("Content-Type", "application/json")
    response.end('{"result":{}}')


app.ws("/connection/websocket", {"compression": CompressOptions.DISABLED, "idle_timeout": 120, "message": subscribe})
app.post("/api/publish", publish)
app.listen(AppListenOptions(port=int(sys.argv[1]), host="127.0.0.1"))
app.run()
