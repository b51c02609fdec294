// Package brokerapi is what a broker says of its queues over HTTP, and how it is asked.
package brokerapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// MaxMessages is how many messages one answer holds at most.
	MaxMessages = 1000
	// MaxPayloads bounds the payload bytes of one answer; what is beyond is cut.
	MaxPayloads = 16 << 20
	// MaxWait is how long an answer waits at most for a message to arrive.
	MaxWait = 30 * time.Second
	// maxAnswer bounds what is read of an answer: payloads in base64 and labels.
	maxAnswer = 64 << 20
)

// Queue is one queue. The counts from Admitted on are since the broker's start.
type Queue struct {
	Path          string `json:"path"`
	Messages      int    `json:"messages"`  // not settled
	Unsettled     int    `json:"unsettled"` // of these, handed out
	Dead          int    `json:"dead"`      // of these, waiting for the queue for dead letters
	Bytes         int    `json:"bytes"`
	Consumers     int    `json:"consumers"`
	Admitted      uint64 `json:"admitted"`
	AdmittedBytes uint64 `json:"admitted_bytes"`
	Repeats       uint64 `json:"repeats"`
	Refused       uint64 `json:"refused"`
	Delivered     uint64 `json:"delivered"`
	Settled       uint64 `json:"settled"`
	Requeued      uint64 `json:"requeued"`
	DeadLettered  uint64 `json:"dead_lettered"`
	StoreError    string `json:"store_error,omitempty"`
}

// Queues is the answer of /api/v1/queues.
type Queues struct {
	Queues []Queue `json:"queues"`
}

// Message is a message that is in a queue.
type Message struct {
	Seq         uint64 `json:"seq"`
	ID          string `json:"id,omitempty"`
	Attempts    uint64 `json:"attempts"`
	State       string `json:"state"` // "ready", "out" or "dead"
	Topic       string `json:"topic,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	Bytes       int    `json:"bytes"`
	Payload     []byte `json:"payload"` // in base64; less than Bytes where it was cut
}

// Messages is the answer of /api/v1/messages.
type Messages struct {
	Messages []Message `json:"messages"`
}

// Client asks a broker.
type Client struct {
	http *http.Client
	base string
	at   string
}

// NewClient returns a client for a broker's admin address: the path of its socket, or host:port.
func NewClient(address string) *Client {
	if _, _, err := net.SplitHostPort(address); err == nil && !strings.ContainsRune(address, '/') {
		return &Client{http: &http.Client{}, base: "http://" + address, at: address}
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", address)
	}
	return &Client{http: &http.Client{Transport: &http.Transport{DialContext: dial}}, base: "http://broker", at: address}
}

// pollInterval is how often WaitReady asks.
const pollInterval = 50 * time.Millisecond

// WaitReady waits until the broker serves its queues. When ctx ends first it fails with what the broker said last.
func (c *Client) WaitReady(ctx context.Context) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var last error
	for {
		var ready string
		err := c.get(ctx, "/readyz", &ready)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // that it was cut short says less than what came before
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return last
		}
	}
}

// Queues returns the queues.
func (c *Client) Queues(ctx context.Context) ([]Queue, error) {
	var all Queues
	err := c.get(ctx, "/api/v1/queues", &all)
	return all.Queues, err
}

// Peek returns at most limit messages of a queue behind the seq after, oldest first. It waits at most wait for the first one.
func (c *Client) Peek(ctx context.Context, path string, after uint64, limit int, wait time.Duration) ([]Message, error) {
	return c.messages(ctx, url.Values{"path": {path}, "after": {strconv.FormatUint(after, 10)}, "limit": {strconv.Itoa(limit)}, "wait": {strconv.Itoa(int(wait / time.Second))}})
}

// Newest returns the newest messages of a queue, at most limit, oldest first.
func (c *Client) Newest(ctx context.Context, path string, limit int) ([]Message, error) {
	return c.messages(ctx, url.Values{"path": {path}, "newest": {strconv.Itoa(limit)}})
}

func (c *Client) messages(ctx context.Context, query url.Values) ([]Message, error) {
	var all Messages
	err := c.get(ctx, "/api/v1/messages?"+query.Encode(), &all)
	return all.Messages, err
}

func (c *Client) get(ctx context.Context, path string, into any) (err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("asking the broker at %s (is it running, and is this its --admin?): %w", c.at, unwrapped(err))
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusNotFound && !strings.HasPrefix(string(body), "there is no"):
		return fmt.Errorf("%s does not tell of messages: give --admin the path of the broker's socket", c.at)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s", c.at, strings.TrimSpace(string(body)))
	}
	if text, ok := into.(*string); ok {
		*text = string(body)
		return nil
	}
	return json.Unmarshal(body, into)
}

// unwrapped takes the URL, which names nothing that the user knows, off an error.
func unwrapped(err error) error {
	if uerr, ok := errors.AsType[*url.Error](err); ok {
		return uerr.Err
	}
	return err
}
