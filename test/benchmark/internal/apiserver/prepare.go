package apiserver

import (
	"net"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/rest"
)

const token = "benchmark"

func tokens(dir string) string { return filepath.Join(dir, "tokens") }

// prepare makes the directory with the token file and returns free ports.
func prepare(dir string, ports int) ([]int, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	line := token + `,benchmark,benchmark,"system:masters"` + "\n"
	if err := os.WriteFile(tokens(dir), []byte(line), 0o600); err != nil {
		return nil, err
	}
	return freePorts(ports)
}

// freePorts returns n different ports.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // at the end, so that no port comes twice
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func clientConfig(port int) *rest.Config {
	return &rest.Config{
		Host: "https://127.0.0.1:" + strconv.Itoa(port), BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1,
	}
}
