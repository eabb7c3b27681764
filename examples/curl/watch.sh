#!/usr/bin/env bash
# The live match in a terminal: curl holds the connection, and sed extracts the events. On an error the script prints it and exits with 1.
# Usage: watch.sh [URL] [CHANNEL]
set -euo pipefail
url=${1:-http://127.0.0.1:8000} channel=${2:-match:live}

exec 3< <(exec curl --silent --show-error --no-buffer --fail-with-body "$url/connection/uni_http_stream" --data "{\"subs\":{\"$channel\":{}}}")
curl=$!
trap 'kill "$curl" 2>/dev/null || true' EXIT
while IFS= read -r line <&3; do
  case "$line" in
    *'"connect"'*"\"$channel\":"* | '{}' | '') ;;
    *'"connect"'*) echo "the server does not give $channel: its log says why" >&2; exit 1 ;;
    *'"pub"'*) printf '%s\n' "$line" | sed -E 's/.*"pub":\{"data":(.*),"offset".*/\1/; t; s/.*"pub":\{"data":(.*)\}\}$/\1/' ;;
    *) printf '%s\n' "$line" >&2 ;;
  esac
done
if wait "$curl"; then echo "the server has ended the stream" >&2; fi
exit 1
