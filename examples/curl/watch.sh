#!/usr/bin/env bash
# The live match in a terminal: curl holds the connection, sed cuts out what happened.
# Usage: watch.sh [URL] [CHANNEL]
set -euo pipefail
url=${1:-http://127.0.0.1:8000} channel=${2:-match:live}

curl --silent --no-buffer --fail "$url/connection/uni_http_stream" --data "{\"subs\":{\"$channel\":{}}}" |
  while IFS= read -r line; do
    case "$line" in
      *'"pub"'*) printf '%s\n' "$line" | sed -E 's/.*"pub":\{"data":(.*),"offset".*/\1/' ;;
      *'"disconnect"'*) printf '%s\n' "$line" >&2 ;;
    esac
  done
