package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestABodyThatIsRefusedLeavesNoRow(t *testing.T) {
	t.Parallel()
	with := func(from, to string) string {
		item := strings.Replace(pix(idA, "1.00"), from, to, 1)
		if item == pix(idA, "1.00") {
			t.Fatalf("%s is not in the notification", from)
		}
		return body(pix(idB, "2.00"), item)
	}
	good := body(pix(idA, "1.00"))
	const jsonType = "application/json"
	cases := []struct {
		name, mediaType, body string
		status                int
	}{
		{"an empty body", jsonType, ``, 400},
		{"no JSON", jsonType, `pix`, 400},
		{"half a body", jsonType, good[:len(good)-2], 400},
		{"two values", jsonType, good + good, 400},
		{"a byte order mark", jsonType, "\ufeff" + good, 400},
		{"invalid UTF-8", jsonType, with("t1", "\xff"), 400},
		{"null", jsonType, `null`, 422},
		{"a number", jsonType, `0`, 422},
		{"a list", jsonType, `[]`, 422},
		{"no pix", jsonType, `{}`, 422},
		{"pix under another name", jsonType, strings.Replace(good, "pix", "pixx", 1), 422},
		{"pix is null", jsonType, `{"pix":null}`, 422},
		{"pix is an object", jsonType, `{"pix":{}}`, 422},
		{"pix is a string", jsonType, `{"pix":"x"}`, 422},
		{"pix is given twice", jsonType, `{"pix":[` + pix(idA, "1.00") + `],"pix":[` + pix(idB, "1.00") + `]}`, 422},
		{"pix is given twice in two spellings", jsonType, `{"pix":[` + pix(idA, "1.00") + `],"PIX":[]}`, 422},
		{"a notification is null", jsonType, body(pix(idA, "1.00"), `null`), 422},
		{"a notification is a list", jsonType, body(`[]`), 422},
		{"a notification is empty", jsonType, body(`{}`), 422},
		{"no endToEndId", jsonType, with(`"endToEndId":"`+idA+`",`, ``), 422},
		{"an empty endToEndId", jsonType, with(idA, ``), 422},
		{"an endToEndId is null", jsonType, with(`"`+idA+`"`, `null`), 422},
		{"an endToEndId of 31 characters", jsonType, with(idA, idA[:31]), 422},
		{"an endToEndId of 33 characters", jsonType, with(idA, idA+"a"), 422},
		{"an endToEndId that begins with D", jsonType, with("E1", "D1"), 422},
		{"an endToEndId with a letter in the bank's number", jsonType, with("E1", "Ea"), 422},
		{"an endToEndId with an underscore", jsonType, with("aaaaaaaaaaa", "aaaaa_aaaaa"), 422},
		{"an endToEndId with a line break", jsonType, with("aaaaaaaaaaa", `aaaaaaaaaaa\n`), 422},
		{"an endToEndId on the 30th of February", jsonType, with("202601151230", "202602301230"), 422},
		{"an endToEndId at 24 hours", jsonType, with("202601151230", "202601152400"), 422},
		{"an endToEndId of the year 0", jsonType, with("202601151230", "000001151230"), 422},
		{"an endToEndId with other digits", jsonType, with("E12345678", "E1234567٨"), 422},
		{"a bad endToEndId under a second spelling", jsonType, with(`"txid"`, `"EndToEndId":"x","txid"`), 422},
		{"an amount that is a number", jsonType, with(`"1.00"`, `1.00`), 422},
		{"an amount that is a number with an exponent", jsonType, with(`"1.00"`, `1e2`), 422},
		{"an amount with an exponent", jsonType, with(`"1.00"`, `"1e2"`), 422},
		{"an amount with one decimal place", jsonType, with(`"1.00"`, `"1.0"`), 422},
		{"an amount without decimal places", jsonType, with(`"1.00"`, `"1"`), 422},
		{"an amount with a comma", jsonType, with(`"1.00"`, `"1,00"`), 422},
		{"an amount below zero", jsonType, with(`"1.00"`, `"-1.00"`), 422},
		{"an amount of 11 digits", jsonType, with(`"1.00"`, `"12345678901.00"`), 422},
		{"an amount that is null", jsonType, with(`"1.00"`, `null`), 422},
		{"a second amount in another spelling", jsonType, with(`"valor":"1.00"`, `"valor":"1.00","Valor":"1e2"`), 422},
		{"no txid", jsonType, with(`"txid":"t1",`, ``), 422},
		{"a txid with a space", jsonType, with(`t1`, `t 1`), 422},
		{"no horario", jsonType, with(`"horario":"2026-01-15T12:30:05Z",`, ``), 422},
		{"a horario without a zone", jsonType, with(`05Z`, `05`), 422},
		{"a horario that is a number", jsonType, with(`"2026-01-15T12:30:05Z"`, `1768480205`), 422},
		{"a horario of the year 0", jsonType, with(`2026-01-15T`, `0000-01-15T`), 422},
		{"no chave", jsonType, with(`,"chave":"ana@example.com"`, ``), 422},
		{"an empty chave", jsonType, with(`ana@example.com`, ``), 422},
		{"a chave of 78 characters", jsonType, with(`ana@example.com`, strings.Repeat("a", 78)), 422},
		{"a chave with a NUL", jsonType, with(`ana@example.com`, `ana\u0000`), 422},
		{"an infoPagador that is a number", jsonType, with(`"txid"`, `"infoPagador":1,"txid"`), 422},
		{"another media type", "text/plain", good, 415},
		{"a form", "application/x-www-form-urlencoded", good, 415},
		{"a malformed media type", "application/", good, 415},
		{"a byte too many", jsonType, good + strings.Repeat(" ", maxBody-len(good)+1), 413},
		{"4 MiB", jsonType, good + strings.Repeat(" ", 4<<20), 413},
	}
	onBoth(t, func(t *testing.T, dsn string) {
		app := openApp(t, dsn)
		url := serveApp(t, app.routes())
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				got := do(t, http.MethodPost, url+"/webhooks/pix", c.mediaType, c.body)
				wantProblem(t, got, c.status)
				if n := stored(t, app); n != 0 {
					t.Errorf("%d rows", n)
				}
				if strings.Contains(got.body, "ana@example.com") {
					t.Errorf("the answer shows what was sent: %s", got.body)
				}
			})
		}
		t.Run("a content coding", func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/webhooks/pix", strings.NewReader(good))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", jsonType)
			req.Header.Set("Content-Encoding", "gzip")
			wantProblem(t, send(t, req), 415)
		})
	})
}

func TestAnAcceptedNotificationIsStoredAsTheBytesReceived(t *testing.T) {
	t.Parallel()
	item := pix(idA, "110.00")
	with := func(from, to string) string { return strings.Replace(item, from, to, 1) }
	const jsonType = "application/json"
	cases := []struct{ name, mediaType, body, payload string }{
		{"the usual one", jsonType, body(item), item},
		{"spaces and line breaks", jsonType, "\n{ \"pix\" :\n[ " + with(":", " :\t") + " ] }\n", with(":", " :\t")},
		{"fields that the type does not know", jsonType, body(with("{", `{"devolucoes":[{"id":"d"}],"gnExtras":{"n":9007199254740993,"x":1e400,"x":1},`)), with("{", `{"devolucoes":[{"id":"d"}],"gnExtras":{"n":9007199254740993,"x":1e400,"x":1},`)},
		{"an unknown field beside pix", jsonType, `{"lote":[1e400],"pix":[` + item + `]}`, item},
		{"escapes", jsonType, body(with("110.00", `\u0031\u00310.00`)), with("110.00", `\u0031\u00310.00`)},
		{"an infoPagador with NUL and a lone surrogate", jsonType, body(with("{", `{"infoPagador":"\u0000\ud800<&>",`)), with("{", `{"infoPagador":"\u0000\ud800<&>",`)},
		{"an infoPagador that is null", jsonType, body(with("{", `{"infoPagador":null,`)), with("{", `{"infoPagador":null,`)},
		{"a time with a zone and a fraction", jsonType, body(with("12:30:05Z", "09:30:05.123-03:00")), with("12:30:05Z", "09:30:05.123-03:00")},
		{"the largest amount", jsonType, body(with("110.00", "9999999999.99")), with("110.00", "9999999999.99")},
		{"no media type", "", body(item), item},
		{"a media type with parameters", `Application/JSON ; charset=utf-8`, body(item), item},
		{"a media type of the JSON family", `application/vnd.psp+json`, body(item), item},
		{"a body of exactly 1 MiB", jsonType, body(item) + strings.Repeat(" ", maxBody-len(body(item))), item},
	}
	onBoth(t, func(t *testing.T, dsn string) {
		app := openApp(t, dsn)
		url := serveApp(t, app.routes())
		for i, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				id := fmt.Sprintf("%s%02d", idA[:30], i)
				got := do(t, http.MethodPost, url+"/webhooks/pix", c.mediaType, strings.Replace(c.body, idA, id, 1))
				wantReceipt(t, got, receipt{Received: 1, Accepted: 1})
				var payload []byte
				row := app.db.QueryRowContext(t.Context(), "SELECT payload FROM inbox_messages WHERE message_id = ? AND source = ? AND name = ?", id, providerSource, creditPixName)
				if err := row.Scan(&payload); err != nil {
					t.Fatal(err)
				}
				if want := strings.Replace(c.payload, idA, id, 1); string(payload) != want {
					t.Errorf("stored %q, want %q", payload, want)
				}
			})
		}
	})
}

func TestRepeatsAreAnswered202AndCounted(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, dsn string) {
		app := openApp(t, dsn)
		url := serveApp(t, app.routes())
		wantReceipt(t, post(t, url, body()), receipt{})
		wantReceipt(t, post(t, url, body(pix(idA, "1.00"), pix(idB, "2.00"), pix(idA, "1.00"))), receipt{Received: 3, Accepted: 2, Duplicates: 1})
		wantReceipt(t, post(t, url, body(pix(idA, "1.00"), pix(idC, "3.00"))), receipt{Received: 2, Accepted: 1, Duplicates: 1})
		wantReceipt(t, post(t, url, body(pix(idA, "1.01"), pix(idB, "2.00"))), receipt{Received: 2, Duplicates: 1, Mismatches: 1})
		// Another spelling of the same: the bytes are what counts.
		wantReceipt(t, post(t, url, body(strings.Replace(pix(idA, "1.00"), ":", ": ", 1))), receipt{Received: 1, Mismatches: 1})
		// Ids differ by case.
		wantReceipt(t, post(t, url, body(pix(strings.Replace(idA, "a", "A", 1), "1.00"))), receipt{Received: 1, Accepted: 1})
		if n := stored(t, app); n != 4 {
			t.Errorf("%d rows, want 4", n)
		}
	})
}

func TestPathsAndMethodsThatDoNotExistAreProblems(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, dsn string) {
		url := serveApp(t, openApp(t, dsn).routes())
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			got := do(t, method, url+"/webhooks/pix", "application/json", body(pix(idA, "1.00")))
			wantProblem(t, got, http.StatusMethodNotAllowed)
			if allow := got.header.Get("Allow"); allow != http.MethodPost {
				t.Errorf("%s: Allow is %q, want POST", method, allow)
			}
		}
		wantProblem(t, do(t, http.MethodPost, url+"/inbox/stats", "application/json", "{}"), http.StatusMethodNotAllowed)
		wantProblem(t, do(t, http.MethodGet, url+"/nowhere", "", ""), http.StatusNotFound)
		wantProblem(t, do(t, http.MethodGet, url+"/", "", ""), http.StatusNotFound)
		for _, chave := range []string{"nobody@example.com", "%00", "%ff", strings.Repeat("a", 100)} {
			wantProblem(t, do(t, http.MethodGet, url+"/accounts/"+chave, "", ""), http.StatusNotFound)
		}
	})
}

func TestAnErrorAnswerListsAFewProblemsWithTheirPlaces(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, dsn string) {
		url := serveApp(t, openApp(t, dsn).routes())
		bad := strings.Replace(pix(idA, "1.00"), "202601151230", "202613151230", 1)
		got := post(t, url, body(pix(idB, "1.00"), bad))
		if !strings.Contains(got.body, `"location":"body.pix[1].endToEndId"`) {
			t.Errorf("the place is missing: %s", got.body)
		}
		got = post(t, url, body(strings.Split(strings.Repeat(bad+"\n", 999)+bad, "\n")...))
		wantProblem(t, got, http.StatusUnprocessableEntity)
		if n := strings.Count(got.body, "location"); n != mostProblems {
			t.Errorf("%d problems, want %d", n, mostProblems)
		}
	})
}

func TestTheOpenAPIDescriptionListsTheRoutes(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, dsn string) {
		got := do(t, http.MethodGet, serveApp(t, openApp(t, dsn).routes())+"/openapi.json", "", "")
		var api struct {
			OpenAPI string
			Paths   map[string]map[string]any
		}
		if err := json.Unmarshal([]byte(got.body), &api); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(api.OpenAPI, "3.") {
			t.Errorf("version %q", api.OpenAPI)
		}
		for path, method := range map[string]string{"/webhooks/pix": "post", "/accounts/{chave}": "get", "/inbox/stats": "get", "/healthz": "get"} {
			if api.Paths[path][method] == nil {
				t.Errorf("%s %s is missing: %s", method, path, got.body)
			}
		}
		if !strings.Contains(got.body, "endToEndId") {
			t.Error("the shape of a notification is missing")
		}
	})
}

func TestAClientThatGoesAwayInTheMiddleOfABodyLeavesNoRow(t *testing.T) {
	t.Parallel()
	good := body(pix(idA, "1.00"))
	onBoth(t, func(t *testing.T, dsn string) {
		app := openApp(t, dsn)
		handled := make(chan struct{}, 1)
		routes := app.routes()
		url := serveApp(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			routes.ServeHTTP(w, r)
			handled <- struct{}{}
		}))
		for name, head := range map[string]string{
			"with a length": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(good)+1, good),
			"in chunks":     fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(good), good),
		} {
			for _, closed := range []string{"both ways", "one way"} {
				t.Run(name+", closed "+closed, func(t *testing.T) {
					conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					// The part that arrives is a whole JSON value.
					if _, err := io.WriteString(conn, "POST /webhooks/pix HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+head); err != nil {
						t.Fatal(err)
					}
					if closed == "both ways" {
						conn.Close()
						<-handled
					} else {
						if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
							t.Fatal(err)
						}
						<-handled
						answer, err := io.ReadAll(conn)
						if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
							t.Errorf("answer %q, %v; want 400", answer, err)
						}
					}
					if n := stored(t, app); n != 0 {
						t.Errorf("%d rows", n)
					}
				})
			}
		}
	})
}
