#!/usr/bin/env bash
# A device with nothing but TCP: subscribes to a channel, prints its publications, and publishes a reading every ten seconds.
# Needs only bash. Usage: device.sh HOST PORT CHANNEL [TOKEN]
set -euo pipefail
host=${1:-127.0.0.1} port=${2:-8001} channel=${3:-news} token=${4:-}
every=10

exec 3<>"/dev/tcp/$host/$port"
say() { printf '%s\n' "$1" >&3; }

say "{\"id\":1,\"connect\":{\"token\":\"$token\"}}"
say "{\"id\":2,\"subscribe\":{\"channel\":\"$channel\"}}"

# One JSON object per line. An empty object is a ping: the answer shows that this client is still alive.
number=2 due= begun=
while true; do
  status=0
  IFS= read -r -t 1 -u 3 line || status=$?
  # A second without a whole line may have brought the beginning of one.
  begun+=$line
  if [ "$status" = 0 ]; then
    line=$begun begun=
    case "$line" in
      '{}') say '{}' ;;
      *'"disconnect"'* | *'"error"'*) echo "$line" >&2; exit 1 ;;
      *'"id":2'*) due=$SECONDS ;;
      *'"pub"'*) echo "$line" ;;
    esac
  elif [ "$status" -le 128 ]; then
    echo "the server has gone" >&2
    exit 1
  fi
  if [ -n "$due" ] && [ "$SECONDS" -ge "$due" ]; then
    due=$((SECONDS + every)) number=$((number + 1))
    say "{\"id\":$number,\"publish\":{\"channel\":\"$channel\",\"data\":{\"humidity\":$((40 + RANDOM % 20))}}}"
  fi
done
