#!/bin/sh
# A running host goes on with its program until it is restarted: it serves clients, and when it pauses is the operator's choice.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
