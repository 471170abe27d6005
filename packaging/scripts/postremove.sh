#!/bin/sh
# /var/lib/catena stays: it is the cluster.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
