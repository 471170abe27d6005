package front

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	genericoptions "k8s.io/apiserver/pkg/server/options"
)

// listen returns the socket to serve on: the given one, or one for the address that the flags name if it is nil. From then on
// the flags name its port. See trackConnections for refused.
func listen(ctx context.Context, flags *Flags, given net.Listener, refused func(bound string)) (*connections, error) {
	serving := flags.options.SecureServing.SecureServingOptions
	listener := given
	if given != nil {
		if err := agree(flags, given.Addr().(*net.TCPAddr)); err != nil {
			return nil, errors.Join(err, given.Close())
		}
	} else {
		bound, err := bind(ctx, serving)
		if err != nil {
			return nil, err
		}
		listener = bound
	}
	if err := flags.setPort(listener.Addr().(*net.TCPAddr).Port); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	tracked := trackConnections(listener, refused)
	serving.Listener = tracked
	return tracked, nil
}

// bind opens the port that the flags name, or any free one if they name port 0, which
// Kubernetes' code does not allow.
func bind(ctx context.Context, serving *genericoptions.SecureServingOptions) (net.Listener, error) {
	addr := net.JoinHostPort(serving.BindAddress.String(), strconv.Itoa(serving.BindPort))
	config := net.ListenConfig{Control: sharing(serving)}
	listener, err := config.Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is in use by another program: stop it, or choose another %s (0 takes a free one)",
			addr, key("secure-port"))
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s may not be bound by this user: choose an %s above 1023", addr, key("secure-port"))
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s is no address of this machine: see %s", addr, key("bind-address"))
	case err != nil:
		return nil, fmt.Errorf("bind %s (%s, %s): %w", addr, key("bind-address"), key("secure-port"), err)
	}
	return listener, nil
}

// agree returns an error if the operator has set another address than that of a socket that was passed to this process.
func agree(flags *Flags, socket *net.TCPAddr) error {
	serving := flags.options.SecureServing.SecureServingOptions
	if port := serving.BindPort; flags.IsSetByOperator("secure-port") && port != 0 && port != socket.Port {
		return fmt.Errorf("the socket that was passed to this process listens on %s, and %s is %d: change one of them, or set no port", socket, key("secure-port"), port)
	}
	ip := serving.BindAddress
	if flags.IsSetByOperator("bind-address") && !ip.Equal(socket.IP) && !(ip.IsUnspecified() && socket.IP.IsUnspecified()) {
		return fmt.Errorf("the socket that was passed to this process listens on %s, and %s is %s: change one of them, or set no address", socket, key("bind-address"), ip)
	}
	return nil
}

// sharing sets the socket options of --permit-port-sharing and
// --permit-address-sharing.
func sharing(serving *genericoptions.SecureServingOptions) func(network, address string, conn syscall.RawConn) error {
	if !serving.PermitPortSharing && !serving.PermitAddressSharing {
		return nil
	}
	return func(_, _ string, conn syscall.RawConn) error {
		var setErr error
		err := conn.Control(func(fd uintptr) {
			if serving.PermitPortSharing {
				setErr = sharePort(int(fd))
			}
			if serving.PermitAddressSharing {
				setErr = errors.Join(setErr, shareAddress(int(fd)))
			}
		})
		return errors.Join(err, setErr)
	}
}
