package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	clients    = 8
	mostTries  = 50
	triesPause = 200 * time.Millisecond
)

// provider is the payment provider: it sends a request again until it is
// answered, and counts the answers.
type provider struct {
	url    string
	client *http.Client

	mu      sync.Mutex
	counted books
}

// deliver sends the requests from 8 clients at once and returns when all are
// answered.
func (p *provider) deliver(ctx context.Context, requests []request, stdout io.Writer) error {
	queue := make(chan request)
	workers := make([]func(context.Context) error, clients)
	for i := range workers {
		workers[i] = func(ctx context.Context) error {
			for r := range queue {
				if err := p.send(ctx, r, stdout); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return together(ctx, append(workers, func(ctx context.Context) error {
		defer close(queue)
		for _, r := range requests {
			select {
			case queue <- r:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})...)
}

// send repeats a request until it gets an answer that is not "come back later".
func (p *provider) send(ctx context.Context, r request, stdout io.Writer) error {
	for try := 1; ; try++ {
		status, contentType, body, err := p.post(ctx, r)
		if err == nil && status != http.StatusServiceUnavailable {
			p.count(r, status, contentType, body, stdout)
			return nil
		}
		if try == mostTries {
			return fmt.Errorf("no answer after %d tries: status %d, %w", try, status, err)
		}
		if err := pause(ctx, triesPause); err != nil {
			return err
		}
	}
}

func (p *provider) post(ctx context.Context, r request) (status int, contentType string, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/webhooks/pix", strings.NewReader(r.body))
	if err != nil {
		return 0, "", nil, err
	}
	req.Header.Set("Content-Type", r.mediaType)
	answer, err := p.client.Do(req)
	if err != nil {
		return 0, "", nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Header.Get("Content-Type"), body, err
}

// count adds an answer, and says so if it is not the planned one.
func (p *provider) count(r request, status int, contentType string, body []byte, stdout io.Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var answer receipt
	planned := status == r.status
	if status == http.StatusAccepted {
		planned = planned && json.Unmarshal(body, &answer) == nil && answer.Received == r.items
		p.counted.Deliveries += r.items
		p.counted.Stored += answer.Accepted
		p.counted.Duplicates += answer.Duplicates
		p.counted.Mismatches += answer.Mismatches
	} else {
		planned = planned && contentType == "application/problem+json"
		p.counted.Rejected++
	}
	if !planned {
		p.counted.Surprises++
		fmt.Fprintf(stdout, "unexpected answer: %d instead of %d to %.200s: %s\n", status, r.status, r.body, bytes.TrimSpace(body))
	}
}
