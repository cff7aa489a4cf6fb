package redisstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/letterbox-go/letterbox/dedupe"
	"github.com/letterbox-go/letterbox/dedupe/dedupetest"
	"github.com/letterbox-go/letterbox/dedupe/redisstore"
)

// servers are the real one, where there is one, and one in this process.
var servers = []struct {
	name  string
	start func(t *testing.T) (addr string)
}{
	{"real server", realServer},
	{"in process", inProcess},
}

func TestContract(t *testing.T) {
	for _, server := range servers {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			addr := server.start(t)
			dedupetest.Run(t, func(t *testing.T) dedupe.Store { return open(t, place(t, addr)) })
		})
	}
}

func TestKilled(t *testing.T) {
	for _, server := range servers {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			// A child process is told the place and starts nothing.
			addr := sync.OnceValue(func() string { return server.start(t) })
			dedupetest.RunKilled(t, func(t *testing.T) string { return place(t, addr()) }, open)
		})
	}
}

// place is an address and a prefix that is empty and is emptied after the test.
func place(t *testing.T, addr string) string {
	t.Helper()
	prefix := "letterbox-test:" + rand.Text() + ":"
	t.Cleanup(func() {
		ctx, client := context.Background(), newClient(t, addr)
		keys := client.Scan(ctx, 0, prefix+"*", 1000).Iterator()
		for keys.Next(ctx) {
			client.Del(ctx, keys.Val())
		}
		if err := keys.Err(); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return addr + " " + prefix
}

func open(t *testing.T, place string) dedupe.Store {
	t.Helper()
	addr, prefix, _ := strings.Cut(place, " ")
	store, err := redisstore.New(newClient(t, addr), redisstore.Config{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func newClient(t *testing.T, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// realServer finds a server as the package comment says.
func realServer(t *testing.T) string {
	t.Helper()
	if addr := os.Getenv("LETTERBOX_TEST_REDIS"); addr != "" {
		return addr
	}
	const usual = "127.0.0.1:6379"
	client := newClient(t, usual)
	if client.Ping(t.Context()).Err() == nil {
		return usual
	}
	program, err := exec.LookPath("redis-server")
	if os.Getenv("CI") == "" || err != nil {
		t.Skipf("no Redis on %s: start one, or set LETTERBOX_TEST_REDIS", usual)
	}
	return startServer(t, program)
}

// startServer starts a server that ends with the test.
func startServer(t *testing.T, program string) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	_ = free.Close()
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	client := newClient(t, addr)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := client.Ping(t.Context()).Err()
		if err == nil {
			return addr
		}
		if time.Now().After(deadline) {
			t.Fatalf("start %s: %v", program, err)
		}
	}
}

// inProcess starts a server whose clock has to be told to run.
func inProcess(t *testing.T) string {
	t.Helper()
	server := miniredis.RunT(t)
	stop, stopped := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-stopped })
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(2 * time.Millisecond)
		defer ticker.Stop()
		last := time.Now()
		for {
			select {
			case <-stop:
				return
			case now := <-ticker.C:
				server.FastForward(now.Sub(last))
				last = now
			}
		}
	}()
	return server.Addr()
}

func TestConfig(t *testing.T) {
	t.Parallel()
	if _, err := redisstore.New(nil, redisstore.Config{}); err == nil {
		t.Error("a nil client is accepted")
	}
}

func TestAServerThatIsDownIsAnError(t *testing.T) {
	t.Parallel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	_ = free.Close()
	store := open(t, addr+" p:")
	key := dedupe.Key{ID: "a"}
	if _, err := store.Reserve(t.Context(), key, "t", time.Second); err == nil {
		t.Error("reserve: no error")
	}
	if _, err := store.Confirm(t.Context(), key, "t", time.Second); err == nil {
		t.Error("confirm: no error")
	}
	if _, err := store.Release(t.Context(), key, "t"); err == nil {
		t.Error("release: no error")
	}
}

func Example() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer client.Close()
	store, err := redisstore.New(client, redisstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	guard, err := dedupe.New(dedupe.Config{Store: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(guard.Stats().Runs)

	// Output:
	// 0
}
