package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/letterbox-go/letterbox/inbox"
)

// on runs a verb on the message in the path.
func on(r *http.Request, verb func(ctx context.Context, id int64) error) (id int64, err error) {
	if id, err = parseID(r.PathValue("id")); err != nil {
		return 0, err
	}
	return id, verb(r.Context(), id)
}

func (d *dashboard) retry(w http.ResponseWriter, r *http.Request, v visitor) error {
	id, err := on(r, d.repo.Retry)
	if err != nil {
		return err
	}
	return redirect(w, v, messagePath(id)+"?done=retry")
}

func (d *dashboard) discard(w http.ResponseWriter, r *http.Request, v visitor) error {
	id, err := on(r, d.repo.Discard)
	if err != nil {
		return err
	}
	return redirect(w, v, messagePath(id)+"?done=discard")
}

func (d *dashboard) skip(w http.ResponseWriter, r *http.Request, v visitor) error {
	if _, err := d.skipKey(r.Context(), r.URL.Query().Get("key")); err != nil {
		return err
	}
	return redirect(w, v, "dead?done=skip")
}

// skipKey says in its own words that no dead message holds the key up.
func (d *dashboard) skipKey(ctx context.Context, key string) (skipped int64, err error) {
	skipped, err = d.repo.SkipKey(ctx, key)
	if errors.Is(err, inbox.ErrNotFound) {
		err = &refusal{http.StatusNotFound, "No dead message holds this ordering key up, or none any more."}
	}
	return skipped, err
}

func (d *dashboard) pause(w http.ResponseWriter, r *http.Request, v visitor) error {
	if err := d.setPaused(r.Context(), r.URL.Query().Get("name"), d.repo.Pause); err != nil {
		return err
	}
	return redirect(w, v, "names?done=pause")
}

func (d *dashboard) resume(w http.ResponseWriter, r *http.Request, v visitor) error {
	if err := d.setPaused(r.Context(), r.URL.Query().Get("name"), d.repo.Resume); err != nil {
		return err
	}
	return redirect(w, v, "names?done=resume")
}

// setPaused refuses what cannot be a name before the repository does, in words
// for a visitor.
func (d *dashboard) setPaused(ctx context.Context, name string, set func(ctx context.Context, name string) error) error {
	if name == "" || strings.ContainsFunc(name, unicode.IsControl) || !utf8.ValidString(name) || len(name) > d.repo.Config().MaxIdentifier {
		return &refusal{http.StatusBadRequest, "This cannot be a name."}
	}
	return set(ctx, name)
}
