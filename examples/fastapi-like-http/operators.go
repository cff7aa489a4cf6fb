package main

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/letterbox-go/letterbox/dashboard"
)

// passwordEnv holds the operators' password. Unset: one that lasts until the
// program ends is made and printed.
const passwordEnv = "OPERATOR_PASSWORD"

// operators guards the dashboard by HTTP Basic: any name, one password. A real
// service asks its own sessions, and tells readers from operators.
type operators struct{ password string }

func newOperators() operators {
	if password := os.Getenv(passwordEnv); password != "" {
		return operators{password}
	}
	return operators{rand.Text()[:16]}
}

func (o operators) authorise(r *http.Request) (actor string, level dashboard.Level, err error) {
	name, password, _ := r.BasicAuth()
	if name == "" || subtle.ConstantTimeCompare([]byte(password), []byte(o.password)) != 1 {
		return "", dashboard.None, errors.New("no name, or a wrong password")
	}
	return name, dashboard.Operator, nil
}

// withDashboard puts the dashboard beside the API. Its jobs end with done.
func (a *app) withDashboard(o operators, done <-chan struct{}) (http.Handler, error) {
	handler, err := dashboard.New(a.repo, dashboard.Config{
		Authorise: o.authorise,
		Challenge: `Basic realm="inbox", charset="UTF-8"`,
		Title:     "Pix inbox",
		Logger:    a.log,
		Done:      done,
	})
	if err != nil {
		return nil, err
	}
	api, mux := a.routes(), http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("/inbox/stats", api)
	mux.Handle("/inbox/", http.StripPrefix("/inbox", handler))
	return mux, nil
}

// print says where the dashboard is, and how to get in. A password that was
// given is not repeated.
func (o operators) print(stdout io.Writer, addr net.Addr) {
	how := "the password in " + passwordEnv
	if os.Getenv(passwordEnv) == "" {
		how = "the password " + o.password
	}
	fmt.Fprintf(stdout, "dashboard: %s/inbox/ (any name, %s)\n", addressOf(addr), how)
}
