package dashboard

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/letterbox-go/letterbox/doctor"
	"github.com/letterbox-go/letterbox/inbox"
)

// Config holds the settings of a dashboard. Authorise is required, or Insecure.
type Config struct {
	// Authorise says who sends a request, and what they may do. It is called for
	// every request, assets included. The actor is the name that the audit trail
	// shows; an operator without one cannot act. An error means that nobody is
	// logged in: it is answered by 401 and not shown. None is answered by 403.
	Authorise func(r *http.Request) (actor string, level Level, err error)
	// Insecure allows a nil Authorise: everybody is an operator. Requests must
	// then be addressed to localhost or to an IP address, which a foreign page
	// cannot imitate.
	Insecure bool
	// Challenge is the WWW-Authenticate header of a 401, for example
	// `Basic realm="inbox"`. Default: none.
	Challenge string
	// TrustedOrigins may send requests that change something although they are
	// another site, as "https://host[:port]": for a proxy that changes the Host
	// header. Default: none but the dashboard itself.
	TrustedOrigins []string

	// Redact may change what is shown of a message: Payload, Metadata and
	// RawMetadata, LastError and the errors in History. Other changes are
	// ignored. It is called before anything of a message is shown; in lists,
	// where only LastError is known, the rest is empty. A nil Payload is not
	// shown. It must be safe for concurrent use. Default: all is shown.
	Redact func(message *inbox.Detail)
	// TraceURL makes a link of the trace id in the metadata "traceparent" (W3C
	// Trace Context): "{trace}" stands for its 32 hexadecimal digits. It begins
	// with http://, https:// or /. Default: no link.
	TraceURL string
	// Title names the inbox in the head of each page. Default "Inbox".
	Title string

	// PageSize is how many messages a list shows. Default 50, at most 500.
	PageSize int
	// Timeout bounds the work for one request. Default 10 s.
	Timeout time.Duration
	// RetryRate is how many messages a second a job retries, unless the operator
	// chooses less. Default 500.
	RetryRate int
	// Done ends the jobs when it is closed; a server's shutdown context has one.
	// Default: they end with the process.
	Done <-chan struct{}
	// Doctor holds the settings of the doctor's page.
	Doctor doctor.Config
	// Logger receives errors that visitors are not shown, and who looked at a
	// payload. Payloads are never logged. Default: discard.
	Logger *slog.Logger
}

func (c *Config) setDefaults() {
	if c.Title == "" {
		c.Title = "Inbox"
	}
	if c.PageSize == 0 {
		c.PageSize = 50
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.RetryRate == 0 {
		c.RetryRate = 500
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// validate joins every problem.
func (c *Config) validate() error {
	var problems []error
	report := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("dashboard: config: "+format, args...))
	}
	if c.Authorise == nil && !c.Insecure {
		report("Authorise is missing: say who may come in, or set Insecure for a machine that nobody else reaches")
	}
	if c.PageSize < 0 || c.PageSize > 500 {
		report("PageSize: not between 1 and 500")
	}
	if c.Timeout < 0 {
		report("Timeout: negative")
	}
	if c.RetryRate < 0 {
		report("RetryRate: negative")
	}
	if c.TraceURL != "" {
		sample, err := url.Parse(strings.ReplaceAll(c.TraceURL, traceMark, "0"))
		local := err == nil && sample.Scheme == "" && sample.Host == "" && strings.HasPrefix(c.TraceURL, "/")
		remote := err == nil && (sample.Scheme == "http" || sample.Scheme == "https") && sample.Host != ""
		if !local && !remote || !strings.Contains(c.TraceURL, traceMark) {
			report("TraceURL: not a URL that begins with http://, https:// or / and contains {trace}")
		}
	}
	return errors.Join(problems...)
}

// traceMark is where the trace id goes in Config.TraceURL.
const traceMark = "{trace}"
