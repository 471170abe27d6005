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
source examples/demo.sh

old=bin/kube-1.36/catena-stage-core
new=bin/plugins/catena-stage-core

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
	serve --set stages.core.binary="$old" # core of 1.36
	bin/demo-load -kubeconfig bin/demo/data/admin.kubeconfig
	;;
upgrade)
	upgrade
	;;
'')
	serve --set stages.core.binary="$old" # core of 1.36
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
