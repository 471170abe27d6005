package cgroup

import "testing"

func TestFind(t *testing.T) {
	t.Parallel()
	const v1 = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
	const v2 = "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	for name, c := range map[string]struct{ cgroups, mounts, want, err string }{
		"unit":                {cgroups: "0::/system.slice/catena.service\n", mounts: v2, want: "/sys/fs/cgroup/system.slice/catena.service"},
		"root":                {cgroups: "0::/\n", mounts: v2, want: "/sys/fs/cgroup"},
		"beside v1":           {cgroups: "8:pids:/\n0::/\n", mounts: v1 + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", want: "/sys/fs/cgroup/unified"},
		"part of the tree":    {cgroups: "0::/docker/a/b\n", mounts: "41 31 0:38 /docker/a /sys/fs/cgroup ro - cgroup2 cgroup rw\n", want: "/sys/fs/cgroup/b"},
		"that part":           {cgroups: "0::/docker/a\n", mounts: "41 31 0:38 /docker/a /sys/fs/cgroup ro - cgroup2 cgroup rw\n", want: "/sys/fs/cgroup"},
		"a name like it":      {cgroups: "0::/docker/ab\n", mounts: "41 31 0:38 /docker/a /sys/fs/cgroup ro - cgroup2 cgroup rw\n", err: "/docker/ab: " + errNoMount.Error()},
		"the second mount":    {cgroups: "0::/b\n", mounts: "40 31 0:38 /a /mnt rw - cgroup2 cgroup2 rw\n" + v2, want: "/sys/fs/cgroup/b"},
		"spaces":              {cgroups: "0::/\n", mounts: `41 31 0:38 / /mnt/a\040b\134 rw - cgroup2 cgroup2 rw` + "\n", want: `/mnt/a b\`},
		"beyond a namespace":  {cgroups: "0::/../other\n", mounts: v2, err: "/../other: " + errNoMount.Error()},
		"no mount":            {cgroups: "0::/\n", mounts: v1, err: "/: " + errNoMount.Error()},
		"no cgroup v2":        {cgroups: "8:pids:/\n", mounts: v1, err: "this machine has no cgroup v2"},
		"nothing":             {err: "this machine has no cgroup v2"},
		"a mount without end": {cgroups: "0::/\n", mounts: "41 31 0:38 - cgroup2", err: "/: " + errNoMount.Error()},
	} {
		got, err := find([]byte(c.cgroups), []byte(c.mounts))
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != c.want || text != c.err {
			t.Errorf("%s: %q, %q; want %q, %q", name, got, text, c.want, c.err)
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add([]byte("0::/a\n"), []byte(`41 31 0:38 / /mnt/a\040b rw - cgroup2 cgroup2 rw`))
	f.Fuzz(func(_ *testing.T, cgroups, mounts []byte) { _, _ = find(cgroups, mounts) })
}

func TestFilesOfLimits(t *testing.T) {
	t.Parallel()
	l := Limits{Memory: 1 << 20, CPU: 1500, PIDs: 64}
	for limit, want := range map[string]string{Memory: "1048576", CPU: "150000 100000", PIDs: "64"} {
		files := l.files(limit)
		if last := files[len(files)-1]; last.name != limit+".max" || last.text != want {
			t.Errorf("%s: %q is written to %s, want %q", limit, last.text, last.name, want)
		}
	}
}
