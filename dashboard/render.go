package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// views are the parsed pages by name.
type views map[string]*template.Template

// page is what the layout gets; the view gets it too and finds its own in Body.
type page struct {
	View    string // the template
	Title   string
	Section string // of the navigation
	Notice  string // what was just done
	Refresh int    // seconds after which the page is loaded anew; 0: never
	Body    any

	Site     string
	Root     string
	Actor    string
	Level    Level
	Insecure bool
	Version  string // of the assets
}

// CanAct reports that buttons are worth showing.
func (p page) CanAct() bool { return p.Level >= Operator && p.Actor != "" }

// Is reports the section that is shown.
func (p page) Is(section string) bool { return p.Section == section }

var viewFunctions = template.FuncMap{
	"text":    func(text string) string { return visible(text, false) },
	"lines":   func(text string) string { return visible(text, true) },
	"cut":     func(limit int, text string) string { return cut(limit, visible(text, false)) },
	"num":     number,
	"count":   func(n int) string { return number(int64(n)) },
	"span":    span,
	"roughly": roughly,
	"since":   since,
	"size":    bytesText,
	"stamp":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") },
	"iso":     func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"plural": func(n int64, one, many string) string {
		if n == 1 {
			return one
		}
		return many
	},
}

// assetVersion makes browsers load assets again after an upgrade.
var assetVersion = func() string {
	sum := sha256.New()
	for _, file := range []string{"style.css", "app.js", "icon.svg"} {
		content, err := assetFiles.ReadFile("assets/" + file)
		if err != nil {
			panic(err) // they are embedded
		}
		sum.Write(content)
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
}()

// parseViews reads the layout once and each page on top of it.
func parseViews() (views, error) {
	layout, err := template.New("layout.html").Funcs(viewFunctions).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, fmt.Errorf("dashboard: parse templates: %w", err)
	}
	files, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("dashboard: parse templates: %w", err)
	}
	all := views{}
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".html")
		if name == "layout" || name == "parts" {
			continue
		}
		view, err := layout.Clone()
		if err == nil {
			view, err = view.ParseFS(templateFiles, file)
		}
		if err != nil {
			return nil, fmt.Errorf("dashboard: parse templates: %w", err)
		}
		all[name] = view
	}
	return all, nil
}

// show renders a page whole before it sends any of it.
func (d *dashboard) show(w http.ResponseWriter, r *http.Request, v visitor, status int, p page) error {
	p.Site, p.Root, p.Actor, p.Level = d.config.Title, v.root, v.actor, v.level
	p.Insecure, p.Version = d.config.Authorise == nil, assetVersion
	if notice, known := notices[r.URL.Query().Get("done")]; known && r.Method == http.MethodGet {
		p.Notice = notice
	}
	var out bytes.Buffer
	if err := d.views[p.View].ExecuteTemplate(&out, "layout.html", p); err != nil {
		return fmt.Errorf("dashboard: render %s: %w", p.View, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = out.WriteTo(w) // the visitor may be gone
	return nil
}

// notices are what a page may say after a redirect. The address holds the key
// only: a link cannot put words here.
var notices = map[string]string{
	"retry":   "The message runs again.",
	"edit":    "The payload is changed, and the message runs again.",
	"discard": "The message is discarded. It will not run.",
	"skip":    "The ordering key goes on without its dead messages.",
	"pause":   "The name is paused. Messages in a handler's hands finish; others wait.",
	"resume":  "The name goes on.",
	"stop":    "The job was told to stop. What it has retried stays retried.",
}

// asset serves the style sheet, the script and the icon.
func (d *dashboard) asset(w http.ResponseWriter, r *http.Request, _ visitor) error {
	file := r.PathValue("file")
	content, err := assetFiles.ReadFile("assets/" + path.Base(file))
	if err != nil {
		return &refusal{http.StatusNotFound, "There is nothing at this address."}
	}
	// The address changes with the content, and the content is no secret.
	w.Header().Set("Cache-Control", "private, max-age=3600")
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	w.Header().Set("Content-Type", kinds[path.Ext(file)])
	_, _ = w.Write(content) // the visitor may be gone
	return nil
}
