package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/letterbox-go/letterbox/inbox"
)

// dashboard is the handler.
type dashboard struct {
	repo    *inbox.Repository
	config  Config
	origins *http.CrossOriginProtection
	mux     *http.ServeMux
	views   views
	jobs    jobs
}

// New returns the dashboard of an inbox. It expects paths that begin after the
// prefix it is mounted under: see http.StripPrefix. It sends no SQL yet.
//
// A config that cannot work is an error that names every problem; one without
// an authoriser is among them, unless Insecure is set.
func New(repo *inbox.Repository, config Config) (http.Handler, error) {
	if repo == nil {
		return nil, errors.New("dashboard: New needs a repository")
	}
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	d := &dashboard{repo: repo, config: config, origins: http.NewCrossOriginProtection(), mux: http.NewServeMux()}
	for _, origin := range config.TrustedOrigins {
		if err := d.origins.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("dashboard: config: TrustedOrigins: %w", err)
		}
	}
	var err error
	if d.views, err = parseViews(); err != nil {
		return nil, err
	}
	for _, route := range routes {
		d.mux.HandleFunc(route.method+" "+route.pattern, func(w http.ResponseWriter, r *http.Request) {
			d.serve(w, r, route)
		})
	}
	return d, nil
}

// visitor is who sent a request.
type visitor struct {
	actor string
	level Level
	root  string // what leads from the requested path to the overview: "./", "../", ...
}

type visitorKey struct{}

// ServeHTTP guards the routes.
func (d *dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	v, status := d.admit(r)
	if status != 0 {
		if status == http.StatusUnauthorized && d.config.Challenge != "" {
			w.Header().Set("WWW-Authenticate", d.config.Challenge)
		}
		d.turnAway(w, r, status)
		return
	}
	v.root = rootOf(r.URL.Path)
	if err := d.origins.Check(r); err != nil {
		d.fail(w, r, v, &refusal{http.StatusForbidden, "This request comes from another site, so nothing was done. Open the dashboard itself and try again."})
		return
	}
	if status := d.unroutable(r); status != 0 {
		d.fail(w, r, v, &refusal{status, "There is nothing at this address."})
		return
	}
	d.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitorKey{}, v)))
}

// serve runs a route for a visitor who may use it, within the time limit.
func (d *dashboard) serve(w http.ResponseWriter, r *http.Request, route route) {
	v, _ := r.Context().Value(visitorKey{}).(visitor)
	if v.level < route.level {
		d.fail(w, r, v, &refusal{http.StatusForbidden, "You may look, but not act: this takes the level of an operator."})
		return
	}
	if route.level == Operator && v.actor == "" {
		d.fail(w, r, v, &refusal{http.StatusForbidden, "What operators do is recorded under their name, and the authoriser gave none."})
		return
	}
	ctx, cancel := context.WithTimeout(inbox.WithActor(r.Context(), v.actor), max(d.config.Timeout, route.timeout))
	defer cancel()
	if r.Method == http.MethodPost {
		r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
	}
	if err := route.serve(d, w, r.WithContext(ctx), v); err != nil {
		d.fail(w, r, v, err)
	}
}

// maxRequest is how large a request may be: an edited payload in a form needs up
// to three times its size.
const maxRequest = 64 << 20

// unroutable returns how to answer a path that has no route. The mux would
// redirect some of them, and does not know the prefix.
func (d *dashboard) unroutable(r *http.Request) int {
	if r.URL.Path == "" || path.Clean(r.URL.Path) != r.URL.Path {
		return http.StatusNotFound
	}
	if _, pattern := d.mux.Handler(r); pattern != "" {
		return 0
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		other := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := d.mux.Handler(other); pattern != "" {
			return http.StatusMethodNotAllowed
		}
	}
	return http.StatusNotFound
}

// rootOf returns the relative way from a path to the overview.
func rootOf(path string) string {
	if depth := strings.Count(path, "/") - 1; depth > 0 {
		return strings.Repeat("../", depth)
	}
	return "./"
}

// redirect sends the browser on after a POST. The target is relative to the
// overview: http.Redirect would make it absolute, without the prefix.
func redirect(w http.ResponseWriter, v visitor, target string) error {
	w.Header().Set("Location", v.root+target)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}
