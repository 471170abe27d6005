package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// network connects machines, each with a network namespace and an address of its own, by a bridge.
type network struct{ name string }

// newNetwork makes a network of some machines. It needs root and the command ip.
func newNetwork(machines int) (*network, error) {
	n := &network{name: fmt.Sprintf("cat%d", os.Getpid()%100000)}
	commands := []string{
		"link add BRIDGE type bridge",
		"addr add " + n.address(0) + "/24 dev BRIDGE",
		"link set BRIDGE up",
	}
	for i := range machines {
		replace := strings.NewReplacer("SPACE", n.space(i), "LINK", n.link(i), "ADDRESS", n.address(i+1))
		for _, c := range []string{
			"netns add SPACE",
			"link add LINK type veth peer name eth0 netns SPACE",
			"link set LINK master BRIDGE up",
			"-n SPACE addr add ADDRESS/24 dev eth0",
			"-n SPACE link set eth0 up",
			"-n SPACE link set lo up",
		} {
			commands = append(commands, replace.Replace(c))
		}
	}
	for _, c := range commands {
		if err := ip(strings.ReplaceAll(c, "BRIDGE", n.name)); err != nil {
			return nil, errors.Join(err, n.remove(machines))
		}
	}
	return n, nil
}

func (n *network) space(machine int) string { return fmt.Sprintf("%sm%d", n.name, machine) }
func (n *network) link(machine int) string  { return fmt.Sprintf("%sv%d", n.name, machine) }

// address returns that of a machine, or of the test with 0. The range is that for tests of networks (RFC 2544).
func (n *network) address(i int) string {
	return fmt.Sprintf("198.18.%d.%d", os.Getpid()%256, 1+i)
}

// partition cuts a machine off from all others, or connects it again. What is sent to it is lost without an error.
func (n *network) partition(machine int, cut bool) error {
	state := "up"
	if cut {
		state = "down"
	}
	return ip("link set " + n.link(machine) + " " + state)
}

// in returns a command line that runs a program on a machine, whose name is that of the host there, in the process that it
// is started in.
func (n *network) in(machine int, host, program string, args ...string) (path string, all []string) {
	return "nsenter", append([]string{"--net=/run/netns/" + n.space(machine),
		"unshare", "--uts", "sh", "-c", `echo "$0" > /proc/sys/kernel/hostname && exec "$@"`, host, program}, args...)
}

// remove deletes as much of the network as there is.
func (n *network) remove(machines int) error {
	var errs []error
	for i := range machines {
		if _, err := os.Stat("/run/netns/" + n.space(i)); err == nil {
			errs = append(errs, ip("netns del "+n.space(i)))
		}
	}
	return errors.Join(append(errs, ip("link del "+n.name))...)
}

func ip(command string) error {
	out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", command, err, out)
	}
	return nil
}
