package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// serve plays the role until ctx ends, then lets requests and handlers finish.
// What is accepted and not yet processed waits for the next start.
func (a *app) serve(ctx context.Context, o *options, stdout io.Writer) error {
	var tasks []func(context.Context) error
	if o.processes() {
		processor, err := a.processor(inbox.Backoff{})
		if err != nil {
			return err
		}
		tasks = append(tasks, processor.Run)
	}
	if o.serves() {
		listener, err := listen(ctx, o.addr)
		if err != nil {
			return err
		}
		operators := newOperators()
		tasks = append(tasks, func(ctx context.Context) error { return a.serveHTTP(ctx, listener, operators) })
		printCurl(stdout, listener.Addr())
		operators.print(stdout, listener.Addr())
	}
	a.log.InfoContext(ctx, "started", "role", o.role, "database", a.db.Dialect().Name().String())
	err := together(ctx, tasks...)
	a.log.InfoContext(ctx, "stopped")
	return err
}

// together runs the tasks until all have returned. When one fails, the others
// are told to stop.
func together(ctx context.Context, tasks ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(tasks))
	var group sync.WaitGroup
	for i, task := range tasks {
		group.Go(func() {
			if errs[i] = task(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is taken by another program: choose another address, for example -addr 127.0.0.1:8081, or -addr 127.0.0.1:0 for a free port", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("-addr: %w", err)
	}
	return listener, nil
}

// serveHTTP serves until ctx ends, then lets running requests finish.
func (a *app) serveHTTP(ctx context.Context, listener net.Listener, operators operators) error {
	handler, err := a.withDashboard(operators, ctx.Done())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelWarn),
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		err := server.Shutdown(grace)
		if errors.Is(err, context.DeadlineExceeded) {
			err = server.Close() // a client that never ends its request
		}
		stopped <- err
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("serve: %w", err)
	}
	return <-stopped // Serve returns when Shutdown begins
}

// printCurl prints three lines that work as they stand, in another terminal.
func printCurl(stdout io.Writer, addr net.Addr) {
	const body = `{"pix":[{"endToEndId":"E12345678202601151230abcDEF12345","txid":"pedido0042","valor":"110.00","horario":"2026-01-15T12:30:05Z","chave":"ana@example.com","infoPagador":"obrigada"}]}`
	url := addressOf(addr)
	fmt.Fprintf(stdout, "curl -X POST -H 'Content-Type: application/json' -d '%s' %s/webhooks/pix\n", body, url)
	fmt.Fprintf(stdout, "curl %s/accounts/ana@example.com\n", url)
	fmt.Fprintf(stdout, "curl %s/inbox/stats\n", url)
}

// addressOf is where the API is from this machine.
func addressOf(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		host, port = "127.0.0.1", "8080"
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}
