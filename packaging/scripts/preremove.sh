#!/bin/sh
# The argument is "remove" (Debian) or 0 (Fedora) if no other version takes the place of this one.
set -e
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl --no-reload disable --now catena.socket catena.service
	fi
	;;
esac
