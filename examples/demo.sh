# What the demonstrations share. They source it, in the root directory of the repository.

export CATENA_DATA_DIR=$PWD/bin/demo/data
clients= # processes that end with the demonstration
pause=${PAUSE:-3} # seconds between two steps

# serve starts Catena with these arguments, and waits until it is ready. Its data and its log are in bin/demo.
serve() {
	rm -rf bin/demo && mkdir -p bin/demo
	bin/catena serve --config configs/kube-apiserver.yaml --set apiserver.secure-port=0 "$@" >bin/demo/log 2>&1 &
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
	# Right after a crash something is wrong, and its exit code is 1.
	{ bin/catena status || true; } | grep -E '^core ( |serves)' | sed 's/^/    /'
	sleep "$pause"
}
