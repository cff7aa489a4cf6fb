package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/letterbox-go/letterbox/inbox"
)

const (
	operator = "ann@shop.example"
	reader   = "rob@shop.example"
)

func TestEveryPageAndAction(t *testing.T) {
	databases(t, func(t *testing.T, s *site) {
		for name, script := range map[string]bool{"with JavaScript": true, "without JavaScript": false} {
			t.Run(name, func(t *testing.T) {
				b := open(t, s.root, operator, script)
				b.overview(s)
				b.list(s)
				b.message(s)
				b.edit(s, script)
				b.discard(s)
				b.pause(s)
				b.retryAll(s, script)
				b.visit("doctor")
				b.sees("examined in")
				b.photographOnce(s, script, "doctor")
				b.calm()
			})
		}
		t.Run("skip a key", func(t *testing.T) {
			b := open(t, s.root, operator, false)
			b.visit("dead")
			b.sees("order 20488", "no stock record")
			b.press("Skip…")
			b.sees("Skip the dead messages of this key?", "order 20488")
			b.press("Skip and go on")
			b.sees("The ordering key goes on without its dead messages.")
			s.becomes(t, s.held[2], inbox.Processed)
		})
		t.Run("a reader sees no buttons", func(t *testing.T) {
			b := open(t, s.root, reader, true)
			for _, path := range []string{"", "messages?status=dead", "dead", "names", "doctor", fmt.Sprintf("messages/%d", s.held[0])} {
				b.visit(path)
				b.seesNot("Retry…", "Retry all", "Discard…", "Edit and retry", "Pause…", "Skip…")
			}
			b.sees("Show payload")
			b.calm()
		})
	})
}

// photographOnce takes one picture of what both runs see.
func (b *tab) photographOnce(s *site, script bool, name string) {
	b.Helper()
	if script && s.first {
		b.photograph(name)
	}
}

func (b *tab) script() bool { return !strings.Contains(b.Name(), "without_JavaScript") }

func (b *tab) overview(s *site) {
	b.Helper()
	b.visit("")
	b.sees("Overview", "Dead", "Oldest due", "Needs attention", "ordering key is held up", "alive", "credit_account", "kafka:orders.v1")
	b.photographOnce(s, b.script(), "overview")
	if !b.script() {
		return
	}
	// The page hears of a new dead message by itself.
	before := eval[string](b, `document.querySelector(".tile dd").textContent`)
	s.accept(b.T, inbox.Entry{MessageID: "evt_9000001", Source: "psp-x", Message: payment{"acc-00007", "12.00", "ledger: currency is not known"}})
	b.do("wait for the refresh", until(fmt.Sprintf(`document.querySelector(".tile dd").textContent !== %q`, before)))
	b.press2("Live")
	if pressed := eval[string](b, `document.querySelector(".live").getAttribute("aria-pressed")`); pressed != "false" {
		b.Errorf("the light is %s", pressed)
	}
}

// press2 clicks what leads to no other page.
func (b *tab) press2(text string) {
	b.Helper()
	selector := fmt.Sprintf(`//main//*[self::a or self::button or self::summary][normalize-space(.)=%q]`, text)
	b.do("press "+text, chromedp.Click(selector, chromedp.NodeVisible))
}

func (b *tab) list(s *site) {
	b.Helper()
	b.visit("messages")
	b.sees("Messages", "order 20488", "parked", "Older")
	b.press("Older")
	b.sees("Newest")
	b.press("Newest")
	b.press2("Filter")
	b.fill(`input[name="error"]`, "mailbox")
	b.press("Apply")
	b.sees("550 mailbox unavailable")
	b.seesNot("account is closed")
	b.press("Clear")
	b.press("Dead")
	b.sees("account is closed", "Retry all of these…")
	b.photographOnce(s, b.script(), "messages")
	b.fill(`input[name="number"]`, fmt.Sprint(s.held[1]))
	b.press2("Filter")
	b.press("Apply")
	b.sees("Waits for", "ord-20488-2")
}

func (b *tab) message(s *site) {
	b.Helper()
	m := s.dead(b.T, "account is closed")
	b.visit(fmt.Sprintf("messages/%d", m.ID))
	b.sees("Why it died", "account is closed", "tenant", "4bf92f3577b34da6", "Failed attempts")
	b.seesNot("acc-0")
	b.press("Show payload")
	b.sees(`"account": "acc-`, "Shown as JSON")
	b.photographOnce(s, b.script(), "message")
	b.press("Hide")
	b.seesNot("acc-0")
	b.press("Retry…")
	b.sees("Retry this message?")
	b.photographOnce(s, b.script(), "confirm")
	b.press("Cancel")
	b.press("Retry…")
	b.press("Retry")
	b.sees("The message runs again.")
	s.becomes(b.T, m.ID, inbox.Dead)
}

func (b *tab) edit(s *site, script bool) {
	b.Helper()
	m := s.dead(b.T, "more digits")
	b.visit(fmt.Sprintf("messages/%d", m.ID))
	b.press("Edit and retry…")
	b.sees("New payload")
	b.fill("textarea", `{"account":"acc-1","amount":`)
	b.press("Compare…")
	b.sees("Not accepted.")
	var was payment
	if err := json.Unmarshal(s.detail(b.T, m.ID).Payload, &was); err != nil {
		b.Fatal(err)
	}
	payload := fmt.Sprintf("{\"account\":%q,\n\"amount\":\"12.50\"}", was.Account)
	b.fill("textarea", payload)
	b.press("Compare…")
	b.sees("Save this payload and retry?", `"amount": "12.50"`, fmt.Sprintf(`"amount": %q`, was.Amount))
	b.photographOnce(s, script, "edit")
	b.press("Edit again")
	b.press("Compare…")
	b.press("Save and retry")
	b.sees("The payload is changed")
	s.becomes(b.T, m.ID, inbox.Processed)
	if got := string(s.detail(b.T, m.ID).Payload); got != payload {
		b.Errorf("%q", got)
	}
}

func (b *tab) discard(s *site) {
	b.Helper()
	m := s.dead(b.T, "more digits")
	b.visit(fmt.Sprintf("messages/%d", m.ID))
	b.press("Discard…")
	b.sees("cannot be retried later")
	b.press("Discard for good")
	b.sees("The message is discarded", "discarded")
	b.seesNot("Retry…", "Discard…")
}

func (b *tab) pause(s *site) {
	b.Helper()
	b.visit("names")
	b.sees("credit_account", "ship_order", "send_receipt")
	b.fill(`input[name="name"]`, "ship_order")
	b.leave("press Pause", chromedp.Click(chromedp.CSS(`form.row button`)))
	b.sees("Pause this name?", "ship_order")
	b.press("Pause")
	b.sees("The name is paused", "by "+operator)
	b.photographOnce(s, b.script(), "names")
	b.press("Resume…")
	b.press("Resume")
	b.sees("The name goes on.")
	b.seesNot("by " + operator)
}

// retryAll works on the messages of one error, which die again. Without
// JavaScript the page loads itself anew.
func (b *tab) retryAll(s *site, script bool) {
	b.Helper()
	n, err := s.repo.RetryAll(b.Context(), inbox.Filter{ErrorContains: "account is closed"}, inbox.RetryAllOptions{DryRun: true})
	if err != nil || n < 5 {
		b.Fatal(n, err)
	}
	b.visit("dead")
	b.sees("Dead messages", "account is closed", "mailbox unavailable", "order")
	b.photographOnce(s, script, "dead")
	b.leave("press Retry", chromedp.Click(`//tr[contains(., "account is closed")]//a[normalize-space(.)="Retry…"]`))
	b.sees("Retry all of these dead messages?", "account is closed", fmt.Sprint(n))
	b.fill(`input[name="rate"]`, "8")
	b.photographOnce(s, script, "retry-all")
	b.press(fmt.Sprintf("Retry %d", n))
	b.sees("retried", "running", "At most 8 a second")
	b.photographOnce(s, script, "job")
	b.sees("done", fmt.Sprintf("of %d retried", n))
	b.visit("jobs")
	b.sees("Retry all", operator)
	b.calm()
}

// paths are pages that show a message.
func paths(id int64) []string {
	return []string{
		"", "messages", "messages?status=dead", "dead", "names", "jobs", "doctor", "retry-all", "keys/skip?key=k", "names/pause?name=n",
		fmt.Sprintf("messages/%d", id), fmt.Sprintf("messages/%d/retry", id), fmt.Sprintf("messages/%d/discard", id), "nowhere",
	}
}

func TestStoredScriptsDoNotRun(t *testing.T) {
	databases(t, func(t *testing.T, s *site) {
		const evil = `"><script>window.pwned=1</script><img src=x onerror="window.pwned=2"><svg onload="window.pwned=3">javascript:window.pwned=4`
		id := s.accept(t, inbox.Entry{
			Source: evil, MessageID: evil, OrderingKey: evil, Message: payment{Account: evil, Fate: evil},
			Metadata: map[string]string{evil: evil, "traceparent": "javascript:window.pwned=5"},
		})[0]
		s.becomes(t, id, inbox.Dead)
		b := open(t, s.root, operator, true)
		check := func(what string) {
			t.Helper()
			if pwned := eval[bool](b, `"pwned" in window || document.querySelector("img, main script, [onerror], [onload], [href^='javascript:']") !== null`); pwned {
				t.Errorf("%s: the text acts", what)
			}
		}
		for _, path := range paths(id) {
			b.visit(path)
			check(path)
		}
		b.visit(fmt.Sprintf("messages/%d", id))
		b.press("Show payload")
		check("payload")
		b.visit(fmt.Sprintf("messages/%d", id))
		b.press("Edit and retry…")
		check("edit")
		b.press("Compare…")
		check("compare")
		b.visit("dead")
		b.do("wait for a refresh", until(`document.querySelector(".live") !== null`))
		b.calm()
	})
}

func TestAnotherSiteCannotAct(t *testing.T) {
	databases(t, func(t *testing.T, s *site) {
		id := s.held[0]
		evil := otherSite(t, fmt.Sprintf(`<form method="post" action="%smessages/%d/retry"><button id="go">Go</button></form>`, s.root, id))
		b := open(t, evil, operator, true)
		b.visit("")
		b.leave("send", chromedp.Click(chromedp.CSS("#go")))
		b.sees("Forbidden", "comes from another site")
		if got := s.detail(t, id); got.Kind != inbox.Dead {
			t.Error(got.Kind)
		}
	})
}

func TestLooks(t *testing.T) {
	databases(t, func(t *testing.T, s *site) {
		b := open(t, s.root, operator, true)
		t.Run("the keyboard reaches the content first, and focus shows", func(t *testing.T) {
			b.visit("messages")
			b.do("press Tab", chromedp.KeyEvent(kb.Tab))
			if first := eval[string](b, `document.activeElement.textContent`); first != "Skip to content" {
				t.Errorf("the first stop is %q", first)
			}
			for range 12 {
				b.do("press Tab", chromedp.KeyEvent(kb.Tab))
				if style := eval[string](b, `getComputedStyle(document.activeElement).outlineStyle`); style == "none" {
					t.Errorf("no focus on %s", eval[string](b, `document.activeElement.outerHTML`))
				}
			}
		})
		t.Run("a telephone needs no sideways scrolling", func(t *testing.T) {
			b.do("become small", chromedp.EmulateViewport(390, 844, chromedp.EmulateScale(2), chromedp.EmulateMobile))
			for _, path := range paths(s.held[0]) {
				b.visit(path)
				if width := eval[int](b, `document.documentElement.scrollWidth`); width > 390 {
					t.Errorf("%q is %d wide", path, width)
				}
			}
			b.visit("messages?status=dead")
			if s.first {
				b.picture("phone", chromedp.CaptureScreenshot())
				b.visit("")
				b.picture("phone-overview", chromedp.CaptureScreenshot())
			}
			b.do("become large", chromedp.EmulateViewport(1280, 860))
		})
		t.Run("dark where the reader wants it dark", func(t *testing.T) {
			dark := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}
			b.do("become dark", call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: dark}))
			b.visit("")
			if ground := eval[string](b, `getComputedStyle(document.body).backgroundColor`); ground != "rgb(19, 20, 23)" {
				t.Error(ground)
			}
			b.photographOnce(s, true, "dark")
		})
		b.calm()
	})
}
