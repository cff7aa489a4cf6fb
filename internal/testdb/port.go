package testdb

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports to choose from lie below those that systems give to outgoing
// connections. Otherwise, while a server restarts, a client that dials its port
// could be given that very port for its own end.
const (
	firstPort = 20000
	lastPort  = 31999
)

// freePort returns a port of 127.0.0.1 on which nobody listens just now.
func freePort() (int, error) {
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if free, err := listen(port); err == nil {
			return free, nil
		}
	}
	port, err := listen(0)
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return port, nil
}

// listen tries out a port and returns it; 0 lets the system choose.
func listen(port int) (int, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
