package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/letterbox-go/letterbox/inbox"
)

const (
	// creditPixName is what notifications are stored under. It outlives the Go type.
	creditPixName = "credit_pix"
	// providerSource is the scope of their ids: there is one provider here.
	providerSource = "pix:psp"
)

// CreditPix is one received Pix as the provider notifies it, and the command
// that the handler receives. The shape is the webhook of the central bank's API:
// https://bacen.github.io/pix-api/
type CreditPix struct {
	EndToEndID  string    `json:"endToEndId" pattern:"^E[0-9]{20}[a-zA-Z0-9]{11}$" doc:"E, 8 digits of the payer's bank, yyyyMMddHHmm, 11 letters or digits"`
	TxID        string    `json:"txid" pattern:"^[a-zA-Z0-9]{1,35}$"`
	Valor       Cents     `json:"valor" pattern:"^[0-9]{1,10}\\.[0-9]{2}$" doc:"Amount in reais, a decimal string" example:"110.00"`
	Horario     time.Time `json:"horario" doc:"RFC 3339"`
	Chave       string    `json:"chave" minLength:"1" maxLength:"77" doc:"The key of the account to credit"`
	InfoPagador string    `json:"infoPagador,omitempty"`
}

// Cents is an amount of money. Its text form is a decimal number of reais with
// two places, and it never is a float on the way.
type Cents int64

var valorPattern = regexp.MustCompile(`^[0-9]{1,10}\.[0-9]{2}$`)

// UnmarshalText takes exactly what the central bank's API allows: "0.01", "110.00".
func (c *Cents) UnmarshalText(text []byte) error {
	if !valorPattern.Match(text) {
		return errors.New("an amount has 1 to 10 digits, a point and 2 digits")
	}
	point := len(text) - 3
	n, err := strconv.ParseInt(string(text[:point])+string(text[point+1:]), 10, 64)
	*c = Cents(n)
	return err
}

// MarshalText is the inverse of UnmarshalText for amounts that are not negative.
func (c Cents) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func (c Cents) String() string { return fmt.Sprintf("%d.%02d", int64(c)/100, int64(c)%100) }

// problem is what is wrong with a field.
type problem struct{ field, text string }

// endToEndIDPattern has the time as its group.
var endToEndIDPattern = regexp.MustCompile(`^E[0-9]{8}([0-9]{12})[a-zA-Z0-9]{11}$`)

// problems checks what a JSON schema cannot say, and what matters so much that
// it must not depend on one: the schema knows one spelling of a key, while
// encoding/json also takes "CHAVE".
func (c *CreditPix) problems() []problem {
	var found []problem
	if m := endToEndIDPattern.FindStringSubmatch(c.EndToEndID); m == nil {
		found = append(found, problem{"endToEndId", "expected E, 8 digits, yyyyMMddHHmm and 11 letters or digits"})
	} else if at, err := time.Parse("200601021504", m[1]); err != nil || !plausible(at) {
		found = append(found, problem{"endToEndId", "expected a date and time at the 10th character"})
	}
	if !txIDPattern.MatchString(c.TxID) {
		found = append(found, problem{"txid", "expected 1 to 35 letters or digits"})
	}
	if !plausible(c.Horario) {
		found = append(found, problem{"horario", "expected a time after 1999"})
	}
	if !validChave(c.Chave) {
		found = append(found, problem{"chave", "expected 1 to 77 characters, none of them a control character"})
	}
	return found
}

var txIDPattern = regexp.MustCompile(`^[a-zA-Z0-9]{1,35}$`)

// plausible also keeps out years that PostgreSQL's timestamps and ours write differently.
func plausible(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 2000 && year <= 9999
}

// validChave reports that a database can hold the key as it is.
func validChave(chave string) bool {
	if n := utf8.RuneCountInString(chave); n < 1 || n > 77 || !utf8.ValidString(chave) {
		return false
	}
	for _, r := range chave {
		if unicode.IsControl(r) {
			return false
		}
	}
	return true
}

// webhook is the body of the provider's request. "pix":null is no list.
type webhook struct {
	Pix notifications `json:"pix" nullable:"false"`
}

// notifications is the list in a body.
type notifications []notification

// UnmarshalJSON refuses a second list under the same key: encoding/json would
// drop the first one, and we would answer that we have it.
func (n *notifications) UnmarshalJSON(data []byte) error {
	if *n != nil {
		return errors.New("the list is given twice")
	}
	list := []notification{}
	err := json.Unmarshal(data, &list)
	*n = list
	return err
}

// notification is one of the list: decoded to be checked, and as received to be stored.
type notification struct {
	credit CreditPix
	raw    json.RawMessage
}

// UnmarshalJSON keeps the bytes, in a copy: they lie in a buffer of the server.
func (n *notification) UnmarshalJSON(data []byte) error {
	n.raw = bytes.Clone(data)
	n.credit = CreditPix{}
	return json.Unmarshal(data, &n.credit)
}

// Schema tells huma that the JSON of a notification is that of a CreditPix.
func (notification) Schema(registry huma.Registry) *huma.Schema {
	return registry.Schema(reflect.TypeFor[CreditPix](), true, "")
}

// entry stores the bytes as received. The inbox compares repeats by a hash of
// them, so that a new field in CreditPix cannot turn a repeat into a mismatch.
func (n *notification) entry() inbox.Entry {
	return inbox.Entry{
		MessageID: n.credit.EndToEndID,
		Source:    providerSource,
		Message:   inbox.Raw{Name: creditPixName, Payload: n.raw},
	}
}

// entries returns all of them, or every problem with its place.
func (w *webhook) entries() ([]inbox.Entry, []error) {
	var problems []error
	entries := make([]inbox.Entry, len(w.Pix))
	for i := range w.Pix {
		for _, p := range w.Pix[i].credit.problems() {
			problems = append(problems, &huma.ErrorDetail{
				Location: fmt.Sprintf("body.pix[%d].%s", i, p.field),
				Message:  p.text,
			})
		}
		entries[i] = w.Pix[i].entry()
	}
	return entries, problems
}
