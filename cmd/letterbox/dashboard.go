package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/letterbox-go/letterbox/dashboard"
	"github.com/letterbox-go/letterbox/doctor"
	"github.com/letterbox-go/letterbox/inbox"
)

const dashboardLong = `Serve the dashboard to a browser on this machine, until it is interrupted.

Nobody logs in. So it listens on a loopback address, and only shows; --write lets
everybody who reaches it act. For more people, mount package dashboard in a
program of yours, behind your own login.`

func (a *app) dashboard() *cobra.Command {
	var listen string
	var write, remote bool
	cmd := &cobra.Command{
		Use: "dashboard", Short: "Serve the dashboard to a browser on this machine", Long: dashboardLong, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !remote && !isLoopback(listen) {
				return usage(cmd, "%q is not a loopback address; --remote lets others in", listen)
			}
			repo, closeDB, err := a.open(cmd.Context(), inbox.Config{})
			if err != nil {
				return err
			}
			defer closeDB()
			level := dashboard.ReadOnly
			if write {
				level = dashboard.Operator
			}
			handler, err := dashboard.New(repo, dashboard.Config{
				Authorise: func(*http.Request) (string, dashboard.Level, error) { return a.actor, level, nil },
				Doctor:    doctor.Config{Outside: true},
				Done:      cmd.Context().Done(),
			})
			if err != nil {
				return err
			}
			if !remote {
				handler = localOnly(handler)
			}
			return a.serve(cmd.Context(), listen, handler)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "address to listen on")
	cmd.Flags().BoolVar(&write, "write", false, "let everybody who reaches it act, too")
	cmd.Flags().BoolVar(&remote, "remote", false, "listen on an address that other machines reach; nobody logs in")
	return cmd
}

// isLoopback reports that only this machine reaches an address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// localOnly refuses requests to other names: a foreign page may have made its
// own name point to this machine.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		if !isLoopback(net.JoinHostPort(host, "0")) {
			http.Error(w, "this dashboard answers to localhost only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// serve ends with ctx, which is no failure.
func (a *app) serve(ctx context.Context, address string, handler http.Handler) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return &stepError{err: err, next: "Choose another --listen address."}
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		stopped <- server.Shutdown(grace)
	}()
	fmt.Fprintf(a.stderr, "The dashboard is at http://%s/ until you press Ctrl-C.\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}
