// Package isolation keeps the process of a stage from what the stage was not granted, by the
// means of the kernel.
//
// A Machine says what can be done here; Machine.Prepare decides what is done for one process.
// The host then starts its own binary again instead of the plugin: that process, in namespaces
// of its own, builds the view of the file system, gives up all rights, and executes the
// plugin in its place (see Dispatch). The process id, the inherited descriptors and the file that
// was verified stay as they are.
//
// The means, by the names that are reported:
//
//	uid         a user of its own, if the host runs as root, as systemd's DynamicUser
//	userns      a user namespace without capabilities
//	mnt         a mount namespace: only what is in reach exists
//	pid         a process namespace: other processes do not exist, and all that the stage has
//	            started ends with it
//	ipc, uts    namespaces for System V IPC and for the name of the machine
//	net         a network namespace without an interface, unless network is granted
//	nnp         no new privileges: no set-user-ID program has an effect
//	nocore      no core dumps
//	seccomp     system calls that no stage needs fail with EPERM
//	landlockN   Landlock, of the given version of its ABI
//	cgroup      a cgroup, with which all that the stage has started ends; it is not part of a Machine,
//	            see package cgroup
//
// What is not reported is not in effect.
package isolation
