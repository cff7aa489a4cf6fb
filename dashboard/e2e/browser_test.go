package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// requireBrowser makes a missing browser a failure.
const requireBrowser = "LETTERBOX_REQUIRE_CHROMIUM"

// browserPath finds the browser, or skips the test.
func browserPath(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv(requireBrowser) != "" {
		t.Fatal("no chromium: apt install chromium")
	}
	t.Skip("no chromium: apt install chromium")
	return ""
}

// tab is a tab of a browser of its own.
type tab struct {
	*testing.T
	ctx  context.Context
	root string // of the dashboard

	mu         sync.Mutex
	complaints []string // of the browser: exceptions, violations of the policy, dialogs
}

// open starts a browser whose requests say that they come from user.
func open(t *testing.T, root, user string, script bool) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(browserPath(t)), chromedp.WindowSize(1280, 860),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("force-color-profile", "srgb"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &tab{T: t, ctx: ctx, root: root}
	// This starts the browser, which lives as long as the context.
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	b.do("open",
		call(network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{"X-User": user}}),
		call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !script}))
	return b
}

// call is an action of one command of the protocol.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

func (b *tab) listen(event any) {
	complaint := ""
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		complaint = "exception: " + event.ExceptionDetails.Text
	case *log.EventEntryAdded:
		if event.Entry.Level == log.EntryLevelError && event.Entry.Source != log.EntrySourceNetwork {
			complaint = event.Entry.Text
		}
	case *page.EventJavascriptDialogOpening:
		complaint = "dialog: " + event.Message
	}
	if complaint != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.complaints = append(b.complaints, complaint)
	}
}

// calm fails when the browser has complained.
func (b *tab) calm() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, complaint := range b.complaints {
		b.Error(complaint)
	}
	b.complaints = nil
}

func (b *tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 60*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.Fatalf("%s: %v", what, err)
	}
}

func (b *tab) visit(path string) {
	b.Helper()
	b.do("visit "+path, chromedp.Navigate(b.root+path))
}

// text is what a reader sees: nothing while a page goes and the next one comes.
func (b *tab) text() string {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.querySelector("main").innerText`))
	if err != nil {
		return ""
	}
	return text
}

func (b *tab) sees(parts ...string) {
	b.Helper()
	text := ""
	for deadline := time.Now().Add(15 * time.Second); ; {
		text = b.text()
		missing := ""
		for _, part := range parts {
			if !strings.Contains(text, part) {
				missing = part
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("%s: %q is not in\n%s", eval[string](b, "location.href"), missing, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// seesNot looks once, at a page that sees has found complete.
func (b *tab) seesNot(parts ...string) {
	b.Helper()
	text := b.text()
	if text == "" {
		b.Fatal("the page is empty")
	}
	for _, part := range parts {
		if strings.Contains(text, part) {
			b.Errorf("%q is in\n%s", part, text)
		}
	}
}

// press clicks a link or button by its text, and waits for the page that follows.
func (b *tab) press(text string) {
	b.Helper()
	selector := fmt.Sprintf(`//main//*[self::a or self::button or self::summary][normalize-space(.)=%q]`, text)
	b.leave("press "+text, chromedp.Click(selector, chromedp.NodeVisible))
}

// leave does what leads to another page, and waits for that.
func (b *tab) leave(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 60*time.Second)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, actions...); err != nil {
		b.Fatalf("%s: %v", what, err)
	}
}

// fill types into a field.
func (b *tab) fill(selector, text string) {
	b.Helper()
	b.do("fill "+selector, chromedp.SetValue(chromedp.CSS(selector), text))
}

// eval evaluates an expression in the page. It asks again when the page was just
// replaced by the next one: the expression was not evaluated then.
func eval[T any](b *tab, expression string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 60*time.Second)
	defer cancel()
	for {
		value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
		if err == nil {
			return value
		}
		if ctx.Err() != nil || !strings.Contains(err.Error(), "Cannot find context") {
			b.Fatalf("evaluate %s: %v", expression, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// photograph writes docs/images/dashboard-<name>.png, the whole page, when
// -screenshots is given.
func (b *tab) photograph(name string) {
	b.Helper()
	b.picture(name, chromedp.FullScreenshot(100))
}

// picture is photograph with another view.
func (b *tab) picture(name string, view chromedp.Action[[]byte]) {
	b.Helper()
	if !*screenshots {
		return
	}
	b.do("let go", chromedp.Evaluate[chromedp.Void](`document.activeElement.blur()`))
	picture, err := chromedp.Run(b.ctx, view)
	if err != nil {
		b.Fatalf("photograph %s: %v", name, err)
	}
	file := filepath.Join("..", "..", "docs", "images", "dashboard-"+name+".png")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(file, picture, 0o644); err != nil {
		b.Fatal(err)
	}
}

// until waits until an expression is true. While a page goes and the next one
// comes there is nothing to ask, which is not yet a failure.
func until(expression string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		for {
			met, err := chromedp.Evaluate[bool](expression)(ctx, t)
			if met && err == nil {
				return nil
			}
			select {
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
}
