#!/bin/sh
# A worker's program: `waybill work --tags images -- examples/resize.sh` runs it for each event.
#
# The payload is its standard input, and the fields of the event are in its environment. What it prints becomes the
# result, if it is JSON. It ends with 0 if the event is done, with 75 if it should be tried again, and with 65 if it can
# never be done; the last lines of its standard error then say why.
set -eu

payload=$(cat)
photo=$(printf '%s' "$payload" | sed -n 's/.*"photo": *\([0-9][0-9]*\).*/\1/p')
if [ -z "$photo" ]; then
    echo "there is no photo in the payload" >&2
    exit 65
fi
echo "resizing photo $photo: $WAYBILL_TITLE, attempt $WAYBILL_ATTEMPT" >&2
printf '{"resized": %s}\n' "$photo"
