package dashboard

import (
	"net"
	"net/http"
	"strings"
)

// contentPolicy lets a page load from the dashboard alone: no inline scripts or
// styles, no frames, no forms to elsewhere.
const contentPolicy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

// setHeaders protects every answer.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// admit asks the authoriser, and returns the status for whom it turns away.
func (d *dashboard) admit(r *http.Request) (v visitor, status int) {
	if d.config.Authorise == nil {
		// A name could be made to point here by a foreign page (DNS rebinding).
		if !unmistakable(r.Host) {
			return visitor{}, http.StatusMisdirectedRequest
		}
		return visitor{actor: "anonymous", level: Operator}, 0
	}
	actor, level, err := d.config.Authorise(r)
	switch {
	case err != nil:
		d.config.Logger.InfoContext(r.Context(), "dashboard: not authorised", "error", err)
		return visitor{}, http.StatusUnauthorized
	case level != ReadOnly && level != Operator:
		return visitor{}, http.StatusForbidden
	}
	return visitor{actor: actor, level: level}, 0
}

// unmistakable reports that a host is this machine or an IP address.
func unmistakable(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host) != nil
}

// turnAway answers somebody who may not even see an error page.
func (d *dashboard) turnAway(w http.ResponseWriter, r *http.Request, status int) {
	text := "You may not see this page."
	switch status {
	case http.StatusUnauthorized:
		text = "Log in to see this page."
	case http.StatusMisdirectedRequest:
		text = "This dashboard has no authoriser and answers only as localhost or under an IP address."
	}
	if isAPI(r) {
		writeProblem(w, status, text)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the visitor may be gone
}

func isAPI(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/api/") }
