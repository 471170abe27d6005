package kube

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// defaultPort is kube-apiserver's secure port.
const defaultPort = "6443"

// serverIdentity is the name of the lease by which a cluster knows a server at an address
// for clients. All stages of a host have the same.
func serverIdentity(externalURL string) (string, error) {
	machine, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name of the machine: %w", err)
	}
	external, err := url.Parse(externalURL)
	if err != nil {
		return "", fmt.Errorf("external address of the server: %w", err)
	}
	return identityOf(machine, external.Port()), nil
}

// identityOf is kube-apiserver's hash of the name of a machine. kube-apiservers on one machine
// have one lease, and do not know of each other. Here the port is a part of it, unless it is the default.
func identityOf(machine, port string) string {
	if port != "" && port != defaultPort {
		machine += ":" + port
	}
	var hashed []byte
	for _, part := range []string{machine, "kube-apiserver"} {
		hashed = binary.BigEndian.AppendUint16(hashed, uint16(len(part)))
		hashed = append(hashed, part...)
	}
	sum := sha256.Sum256(hashed)
	return "apiserver-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}
