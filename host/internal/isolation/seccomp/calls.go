package seccomp

import "strings"

// verdict is what the filter does with a system call.
type verdict int

const (
	allowed verdict = iota
	// refused calls fail with EPERM.
	refused
	// absent calls fail with ENOSYS, as in a kernel without them: programs have another way.
	absent
	// checked calls depend on their arguments, and on the options of the filter.
	checked
)

func (v verdict) String() string {
	return [...]string{"allowed", "EPERM", "ENOSYS", "depends"}[v]
}

// rule is what the filter does with some system calls. A call is in one rule.
type rule struct {
	calls   string // names, separated by blanks
	verdict verdict
	// why has the reason; allowed calls need one if others refuse them.
	why string
}

func (r rule) names() []string { return strings.Fields(r.calls) }

// rules are those for all architectures: a name that one of them does not have is not looked for there.
func rules() []rule {
	return []rule{
		{
			calls: "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd", verdict: refused,
			why: "They reach into other processes.",
		},
		{
			calls: "mount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr", verdict: refused,
			why: "They change which files are in reach.",
		},
		{calls: "unshare setns", verdict: refused, why: "In a user namespace a process has capabilities, and so far more of the kernel in reach."},
		{calls: "open_by_handle_at", verdict: refused, why: "It opens files that no path leads to."},
		{calls: "keyctl add_key request_key", verdict: refused, why: "Keyrings are not part of a namespace."},
		{
			calls: "bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register uprobe uretprobe lookup_dcookie lsm_set_self_attr", verdict: refused,
			why: "They are large parts of the kernel, have been ways out of sandboxes, and no stage needs them. What io_uring does passes by this filter.",
		},
		{
			calls:   "kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff acct quotactl quotactl_fd sethostname setdomainname syslog vhangup iopl ioperm modify_ldt",
			verdict: refused, why: "They are for administrators of the machine.",
		},
		{calls: "settimeofday clock_settime clock_adjtime adjtimex", verdict: refused, why: "They set the clock of the machine."},
		{
			calls: "inotify_init inotify_init1 inotify_add_watch fanotify_init fanotify_mark", verdict: refused,
			why: "They tell what others do with files that the stage can read: which programs are executed, for instance. " +
				"A user of the machine has 128 instances.",
		},
		{
			calls: "shmget semget msgget mq_open mq_unlink memfd_secret", verdict: refused,
			why: "They hold memory of the kernel that no process has, and that only a cgroup counts. What they make outlives the process, and others of its user have it.",
		},
		{calls: "memfd_create", verdict: absent, why: "As those before it. Programs use a file in `/dev/shm` instead, which is counted."},
		{
			calls: "mbind set_mempolicy set_mempolicy_home_node get_mempolicy migrate_pages move_pages", verdict: refused,
			why: "They decide on which processor's memory others lie, too.",
		},
		{
			calls: "io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents", verdict: absent,
			why: "The machine has a number of contexts for it, `fs.aio-max-nr`, and one process can take them all. Programs use threads instead.",
		},
		{
			calls: "sync syncfs", verdict: refused,
			why: "They write what all have written, etcd too, and others wait for the disk meanwhile. `fsync` writes what is the stage's own.",
		},
		{calls: "file_setattr", verdict: refused, why: "It changes flags of files that others share."},
		{calls: "clone3", verdict: absent, why: "Its flags are in memory, where the filter does not see them; the C library uses `clone` then."},
		{calls: "openat2", verdict: absent, why: "The mode of the new file is in memory, where the filter does not see it; programs use `openat` then."},
		{
			calls: "create_module get_kernel_syms query_module uselib _sysctl ustat sysfs afs_syscall tuxcall security vserver getpmsg putpmsg " +
				"nfsservctl epoll_ctl_old epoll_wait_old listns rseq_slice_yield", verdict: absent,
			why: "Kernels have them no longer, or have had them for too short a time for programs to need them.",
		},

		{calls: "clone", verdict: checked, why: "Not with flags for new namespaces."},
		{
			calls: "socket", verdict: checked,
			why: "Unix sockets and NETLINK_ROUTE; IPv4 and IPv6 with a network namespace of its own or the grant `network`. Other families, AF_VSOCK for one, are not part of a network namespace.",
		},
		{calls: "socketpair", verdict: checked, why: "Unix sockets only."},
		{
			calls: "chmod fchmod fchmodat fchmodat2 mknod mknodat", verdict: checked,
			why: "Not with set-user-ID or set-group-ID. Where the stage has the user of others and sees their files, modes do not change at all.",
		},
		{calls: "open openat creat", verdict: checked, why: "No new file with set-user-ID or set-group-ID."},
		{
			calls: "chown lchown fchown fchownat utime utimes futimesat utimensat setxattr lsetxattr fsetxattr setxattrat " +
				"removexattr lremovexattr fremovexattr removexattrat", verdict: checked,
			why: "Not where the stage has the user of others and sees their files: Landlock does not govern them.",
		},
		{calls: "truncate", verdict: checked, why: "As those before it, unless Landlock governs it, from its version 3 on."},
		{
			calls: "fcntl", verdict: checked,
			why: "Not F_NOTIFY, which is as inotify is, and not F_SETLEASE, with which others wait for up to 45 s when they open a file.",
		},
		{
			calls: "ioctl", verdict: checked,
			why: "Not TIOCSTI and TIOCLINUX, which type into a terminal; not those that set flags of files where the stage has the user of others and sees their files.",
		},
		{
			calls: "setrlimit", verdict: checked,
			why: "Not RLIMIT_CORE, which is 1 byte: with 0 the kernel starts a program, as root, that is given the memory of a " +
				"process that crashes.",
		},
		{
			calls: "prctl", verdict: checked,
			why: "What C libraries, Go and programs need for themselves. Not filters of seccomp, as below, and neither " +
				"PR_SET_MEMORY_MERGE nor PR_SCHED_CORE, which cost others.",
		},
		{
			calls: "seccomp", verdict: checked,
			why: "Questions, and the strict mode. Filters may have each call written into the machine's audit; they fail as " +
				"in a kernel without them.",
		},
		{
			calls: "prlimit64 setpriority ioprio_set sched_setaffinity sched_setscheduler sched_setparam sched_setattr", verdict: checked,
			why: "Only for the process itself where it sees processes of others that have its user. " +
				"prlimit64 as setrlimit.",
		},

		{
			calls: "landlock_create_ruleset landlock_add_rule landlock_restrict_self", verdict: allowed,
			why: "With them a stage can give up more. What is denied then is not written into the machine's audit.",
		},
		{calls: "pkey_alloc pkey_free pkey_mprotect map_shadow_stack mseal mincore cachestat", verdict: allowed,
			why: "They are about the memory of the process itself, or about files that it has opened."},
		{
			calls: "futex_requeue futex_wait futex_wake getxattrat listxattrat statmount listmount lsm_get_self_attr lsm_list_modules file_getattr", verdict: allowed,
			why: "Later forms of calls that all programs may use, or questions about the process itself and what it sees anyway.",
		},
		{calls: plain, verdict: allowed},
	}
}

// plain are the calls that Docker's default profile and systemd's @system-service allow, too.
const plain = `
	accept accept4 access alarm arch_prctl bind brk capget capset chdir clock_getres clock_gettime clock_nanosleep close
	close_range connect copy_file_range dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2
	epoll_wait eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fallocate fchdir fdatasync
	fgetxattr flistxattr flock fork fstat fstatfs fsync ftruncate futex futex_waitv get_robust_list get_thread_area getcpu
	getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid
	getpriority getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid
	getxattr inotify_rm_watch
	ioprio_get kill lgetxattr link linkat listen listxattr llistxattr lseek lstat madvise membarrier mkdir mkdirat mlock
	mlock2 mlockall mmap mprotect mq_getsetattr mq_notify mq_timedreceive mq_timedsend mremap msgctl
	msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat pause personality pidfd_open
	pidfd_send_signal pipe pipe2 poll ppoll pread64 preadv preadv2 pselect6 pwrite64 pwritev pwritev2 read readahead
	readlink readlinkat readv recvfrom recvmmsg recvmsg remap_file_pages rename renameat renameat2 restart_syscall rmdir
	rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
	rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam
	sched_getscheduler sched_rr_get_interval sched_yield select semctl semop semtimedop sendfile sendmmsg sendmsg sendto
	set_robust_list set_thread_area set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setregid setresgid
	setresuid setreuid setsid setsockopt setuid shmat shmctl shmdt shutdown sigaltstack signalfd signalfd4 splice
	stat statfs statx symlink symlinkat sync_file_range sysinfo tee tgkill time timer_create timer_delete
	timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill umask uname
	unlink unlinkat vfork vmsplice wait4 waitid write writev`
