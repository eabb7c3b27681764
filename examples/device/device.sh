#!/usr/bin/env bash
# A device with nothing but TCP: subscribes to a channel, prints what is published there, and reports a reading now and then.
# Needs bash alone. Usage: device.sh HOST PORT CHANNEL [TOKEN]
set -euo pipefail
host=${1:-127.0.0.1} port=${2:-8001} channel=${3:-news} token=${4:-}

exec 3<>"/dev/tcp/$host/$port"
say() { printf '%s\n' "$1" >&3; }

say "{\"id\":1,\"connect\":{\"token\":\"$token\"}}"
say "{\"id\":2,\"subscribe\":{\"channel\":\"$channel\"}}"

# One JSON object a line. An empty one is a ping: the answer says that we are still here.
while IFS= read -r line <&3; do
  case "$line" in
    '{}') say '{}' ;;
    *'"disconnect"'* | *'"error"'*) echo "$line" >&2; exit 1 ;;
    *'"pub"'*) echo "$line" ;;
  esac
done
