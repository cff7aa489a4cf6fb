// Package httpinbox puts an inbox behind an HTTP route: it takes a message from
// a POST, stores it, and answers 202 after the commit. It needs net/http only,
// so any router can carry its handlers.
//
// # Quick start
//
//	accept, err := httpinbox.New(repo, httpinbox.Config[CreditAccount]{
//		Identify:  httpinbox.IdempotencyKey(),
//		Source:    "api",
//		StatusURL: httpinbox.StatusPath("/credits/"),
//	})
//	...
//	status, err := httpinbox.NewStatus(repo, httpinbox.StatusConfig{Name: "credit_account", Source: "api"})
//	...
//	mux.Handle("/credits", accept)
//	mux.Handle("/credits/{id}", status)
//
// The answer is {"message_id", "outcome", "status_url"} and a Location; outcome
// is "stored" or "duplicate", and both are a success.
//
// # What the message id is
//
// [IdempotencyKey] for clients of an API, [StandardWebhooks] for signed
// webhooks, [CloudEvents] for events, [FromBody] where the sender puts its id
// in the message, or an [Identifier] of one's own. A request without an id is
// refused, never stored under a made-up one.
//
// # What is stored
//
// The body as it was received; with CloudEvents in structured mode, the data as
// it stands in the envelope. It is decoded once with the codec of its name, to
// see that the processor will be able to, and validated: by a method
// Validate() error of the message, if there is one, and by Config.Validate.
// Unknown fields are ignored, as the codec ignores them.
//
// The header fields traceparent and tracestate (W3C Trace Context) are stored
// as metadata where they are well formed; package tracecontext gives them back
// in the handler.
//
// # Problems
//
// Errors are answered as application/problem+json (RFC 9457) with a code:
//
//	400 message_id_missing, message_id_invalid   no id, or one that cannot be stored
//	400 malformed_json, incomplete_body          not JSON; the body ended early
//	400 cloudevent_invalid, entry_invalid        not a CloudEvent 1.0; source or metadata out of bounds
//	401 signature_invalid                        StandardWebhooks could not verify it
//	403 source_refused                           SourceFunc returned an error
//	404 not_found                                status route: no such message here
//	405 method_not_allowed                       with Allow
//	408 incomplete_body                          the server's read timeout struck
//	413 too_large                                body over MaxBody, or over the inbox's own limit
//	415 unsupported_media_type                   other media type or charset, or compressed
//	422 wrong_shape, unknown_type                JSON, but not the message; an event type that has no name
//	422 mismatch                                 the id was used with another body
//	429 saturated                                Config.Saturation; with Retry-After
//	500 internal                                 Config.Name is registered for a type that is not T
//	503 unavailable                              the database fails; with Retry-After
//
// A 4xx other than 408 and 429 is final: the same request will never be taken.
//
// # Guarantee
//
// A 202 means that the message is committed, now or by an earlier request. After
// any other answer, or none, the sender may send again: nothing is stored twice.
// A client that goes away in the middle of its body has stored nothing. When the
// reply of the database to the commit is lost, the answer is 503, and the repeat
// is told "duplicate".
//
// # Concurrency
//
// Handlers are safe for concurrent use.
//
// # What it does not do
//
// It does not authenticate clients (StandardWebhooks does), limit their rate, or
// store responses. It sets no read timeout: http.Server.ReadTimeout does. It does
// not log bodies or header values other than the message id.
//
// # Testing
//
// The handlers work under httptest. The clock of StandardWebhooks can be set.
package httpinbox
