#!/usr/bin/env bash
# One "kubectl get --watch" goes on while the process that serves it is replaced, killed, and shares its clients with another.
# "make demo-watch" builds what it needs, and runs it. The exit code is not 0 if the watch has ended, or an event is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
source examples/demo.sh

kubectl() { bin/tools/kubectl --kubeconfig "$CATENA_DATA_DIR/admin.kubeconfig" "$@"; }

# observe makes a ConfigMap, and waits until the watch shows it.
observe() {
	kubectl create configmap "$1" | sed 's/^/    /'
	for _ in $(seq 200); do
		grep -q "^$1 " bin/demo/events && break
		sleep 0.1
	done
	grep "^$1 " bin/demo/events | sed 's/^/    the watch shows: /'
}

# kill_core kills the process that serves, and waits for the next one.
kill_core() {
	kill -KILL "$(bin/catena status core -o pid)"
	until { bin/catena status core || true; } | grep -q '^core .* serving'; do sleep 0.1; done
}

serve --set stages.core.probation=1s --set stages.core.drainSpread=1s # so that the watch moves soon
kubectl get configmaps --watch -v=6 >bin/demo/events 2>bin/demo/requests & clients=$!
until grep -q 'watch=true' bin/demo/requests; do sleep 0.1; done

observe before
step 'A new process of core takes the place of the old one, whose watches leave it a second later.' bin/catena swap core
observe after-a-swap
step 'The new one is killed.' kill_core
observe after-a-crash
step 'Most users, this one among them, go to another process, and back.' bin/catena swap core --canary 90% --by user --for 1h
observe within-a-canary
step 'Back.' bin/catena swap core --rollback
observe after-the-way-back

printf '\nThe host has gone on with the watch:\n'
kubectl get --raw /metrics | grep '^catena_watch_resumes_total' | sed 's/^/    /'
# -v=6 has kubectl write down each request: one list, and one watch.
watches=$(grep -c 'watch=true' bin/demo/requests)
printf 'kubectl has asked for %s watch, which shows %s objects.\n' "$watches" "$(grep -c -E '^(before|after|within)' bin/demo/events)"
kill -0 "$clients" && [ "$watches" = 1 ]
