// Package e2e holds the tests of the dashboard in a real browser: Debian's
// chromium, driven by chromedp. It is a module of its own, so that nobody who
// uses the library needs either. Without the browser the tests are skipped.
package e2e
