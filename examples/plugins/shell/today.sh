#!/bin/sh
# A plugin with one tool, in plain sh: tells the date. Speaks the `describe` form: one tool, no call ids.
while read -r line; do
  case $line in
    *'"describe"'*)
      echo '{"name":"today","description":"Tells today'"'"'s date in UTC.","parameters":{"type":"object","properties":{}}}' ;;
    *'"call"'*)
      printf '{"content":[{"type":"text","text":"%s"}],"error":false}\n' "$(date -u +%F)" ;;
    *)
      echo '{"content":[{"type":"text","text":"unknown message type"}],"error":true}' ;;
  esac
done
