#!/usr/bin/env bash
# Core goes from Kubernetes 1.36 to 1.37 and back, while clients use it and their failures are counted.
#
#   examples/upgrade/demo.sh            the whole demonstration; the exit code is not 0 if a request has failed
#
# or, in two terminals:
#
#   examples/upgrade/demo.sh load       starts a server and the load, until Ctrl-C
#   examples/upgrade/demo.sh upgrade    the steps, as often as you like
#
# "make demo-upgrade" builds what it needs, and runs it. Data and log of the server are in bin/demo.
set -euo pipefail
cd "$(dirname "$0")/../.."

old=bin/kube-1.36/catena-stage-core
new=bin/plugins/catena-stage-core
clients=
export CATENA_DATA_DIR=$PWD/bin/demo/data
pause=${PAUSE:-3} # seconds between two steps

# serve starts Catena, with core of 1.36, and waits until it is ready.
serve() {
	rm -rf bin/demo && mkdir -p bin/demo
	bin/catena serve --config configs/kube-apiserver.yaml --set apiserver.secure-port=0 --set stages.core.binary="$old" >bin/demo/log 2>&1 &
	server=$!
	trap 'kill $clients $server 2>/dev/null; wait $server 2>/dev/null || true' EXIT
	for _ in $(seq 240); do
		grep -q '^ready after' bin/demo/log && return
		kill -0 $server 2>/dev/null || break
		sleep 0.5
	done
	tail -n 20 bin/demo/log
	exit 1
}

# step announces a command, runs it, and says what serves now.
step() {
	printf '\n=== %s\n    $ %s\n' "$1" "${*:2}"
	"${@:2}" | sed 's/^/    /'
	bin/catena status | grep -E '^core ( |serves)' | sed 's/^/    /'
	sleep "$pause"
}

upgrade() {
	step 'What would the upgrade change? Nothing moves yet.' bin/catena upgrade plan core --binary $new --emulate
	step 'To 1.37, which serves as 1.36 at first: the way back stays safe.' bin/catena swap core --binary $new --emulate
	step 'Back to 1.36.' bin/catena swap core --binary $old
	step 'To 1.37 again.' bin/catena swap core --binary $new --emulate
	step 'Finalize: it serves as 1.37.' bin/catena upgrade finalize core
	step 'All the way back to 1.36.' bin/catena swap core --binary $old
}

case "${1:-}" in
load)
	serve
	bin/demo-load -kubeconfig bin/demo/data/admin.kubeconfig
	;;
upgrade)
	upgrade
	;;
'')
	serve
	bin/demo-load -kubeconfig bin/demo/data/admin.kubeconfig & clients=$!
	sleep "$pause"
	upgrade
	kill -TERM $clients
	wait $clients # its exit code is that of the demonstration
	;;
*)
	echo "usage: $0 [load | upgrade]"
	exit 2
	;;
esac
