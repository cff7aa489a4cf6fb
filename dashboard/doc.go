// Package dashboard is a web page for operators of an inbox: what is stuck, since
// when, why, and what can be done about it.
//
// # Quick start
//
//	handler, err := dashboard.New(repo, dashboard.Config{Authorise: operators})
//	mux.Handle("/inbox/", http.StripPrefix("/inbox", handler))
//
// All links are relative, so it works at the root, under any prefix, and behind
// a proxy that changes paths.
//
// # Guarantee
//
// It is closed by default: New refuses a Config that does not say who may come
// in. A visitor may be nobody, a reader or an operator; only operators change
// anything, only by POST, after a page that asks, and under the name that the
// authoriser gave (see inbox.WithActor). Requests from other sites are refused.
// Payloads are shown on request only, after Config.Redact. What senders and
// handlers wrote is never more than text.
//
// # API
//
// Under api/ the same verbs answer JSON behind the same guard; api/openapi.yaml
// describes them.
//
// # Jobs
//
// To retry many messages is a job of the handler: it goes on when the page is
// closed, and ends when it is done, when it is stopped, when Config.Done closes,
// or with the process. What it has retried by then stays retried. Other
// processes do not know of it, and the last 20 are remembered.
//
// # Concurrency
//
// The handler is safe for concurrent use. It starts goroutines for jobs only.
//
// # What it does not do
//
// It loads nothing from elsewhere, keeps no session, and works without
// JavaScript; with it, pages refresh themselves.
package dashboard
