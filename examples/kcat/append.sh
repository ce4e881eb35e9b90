#!/usr/bin/env bash
# append.sh BOOTSTRAP TOPIC: appends one record to partition 0 at its next
# offset, then asks for the same offset again and is refused.
set -euo pipefail
bootstrap=$1 topic=$2

append() { # EXPECTED VALUE
  if echo "$2" | kcat -P -b "$bootstrap" -t "$topic" -p 0 \
    -H "expected-offset=$1" -H "append-id=$RANDOM-$(date +%s%N)" 2>&1; then
    echo "appended at $1"
  else
    echo "refused or unknown at $1"
  fi
}

next=$(kcat -Q -b "$bootstrap" -t "$topic:0:-1" | grep -o '[0-9]*$')
append "$next" first
append "$next" second
