package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weir-agent/weir/cmd/weida/internal/exit"
	"github.com/weir-agent/weir/cmd/weida/internal/framing"
	"github.com/weir-agent/weir/weida"
)

// defaultMaxBytes is the longest message that is held in memory unless a flag says otherwise.
const defaultMaxBytes = 16 << 20

// frames is the flags of what is read and written.
type frames struct {
	name     string
	maxBytes int

	framing framing.Framing
}

func (f *frames) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "framing", framing.Line.String(), "how messages are told apart: "+framing.Names)
	cmd.Flags().IntVar(&f.maxBytes, "max-bytes", defaultMaxBytes, "longest message in bytes, where it is not streamed")
}

func (f *frames) check() error {
	var err error
	if f.framing, err = framing.Parse(f.name); err != nil {
		return exit.Usage(fmt.Errorf("--framing: %w", err))
	}
	if f.maxBytes < 1 {
		return exit.Usage(fmt.Errorf("--max-bytes: %d: at least 1 is possible", f.maxBytes))
	}
	return nil
}

// input reads messages from an input that cannot be interrupted, so that a signal need not wait for the next one.
type input struct {
	messages chan []byte
	failed   chan error // gets io.EOF, or why no more was read, once
	stop     chan struct{}
}

// reading begins to read. Whoever stops early closes stop; a read that is under way ends with the process.
func reading(in io.Reader, f *frames) *input {
	i := &input{messages: make(chan []byte), failed: make(chan error, 1), stop: make(chan struct{})}
	r := framing.NewReader(in, f.framing, f.maxBytes)
	go func() {
		defer close(i.messages)
		for {
			message, err := r.Next()
			if err != nil {
				i.failed <- err
				return
			}
			select {
			case i.messages <- message:
			case <-i.stop:
				i.failed <- errInterrupted
				return
			}
		}
	}()
	return i
}

var errInterrupted = errors.New("interrupted before the end of the input")

// next returns the next message, or false behind the last one or when done is closed first.
func (i *input) next(done <-chan struct{}) ([]byte, bool) {
	select {
	case <-done:
		return nil, false
	default:
	}
	select {
	case m, ok := <-i.messages:
		return m, ok
	case <-done:
		return nil, false
	}
}

// end says why there was no more, and nil at the end of the input.
func (i *input) end() error {
	close(i.stop)
	select {
	case err := <-i.failed:
		if errors.Is(err, io.EOF) {
			return nil
		}
		if !errors.Is(err, errInterrupted) {
			err = fmt.Errorf("standard input: %w", err)
		}
		return err
	default:
		return errInterrupted
	}
}

// output writes messages as they come in.
type output struct {
	w      *framing.Writer
	plain  io.Writer
	asJSON bool
	topics bool
}

func newOutput(cmd *cobra.Command, f *frames, asJSON, topics bool) *output {
	return &output{w: framing.NewWriter(cmd.OutOrStdout(), f.framing), plain: cmd.OutOrStdout(), asJSON: asJSON, topics: topics}
}

// printed is a message as --json prints it.
type printed struct {
	Endpoint    string `json:"endpoint,omitempty"`
	Topic       string `json:"topic,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	Peer        string `json:"peer"`
	Missed      uint64 `json:"missed,omitempty"` // just before this one
	Payload     []byte `json:"payload"`          // in base64
}

// write writes a message. It is out for certain after flush.
func (o *output) write(m *weida.IncomingMeta, body []byte) error {
	err := o.put(m, body)
	if err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	return nil
}

func (o *output) put(m *weida.IncomingMeta, body []byte) error {
	switch {
	case o.asJSON:
		return json.NewEncoder(o.plain).Encode(printed{
			Endpoint: m.Endpoint, Topic: m.Topic.Value, ContentType: m.ContentType, Peer: m.Peer.String(), Missed: m.Gap.Missed(), Payload: body,
		})
	case o.topics:
		return o.w.Write(bytes.Join([][]byte{[]byte(m.Topic.Value), body}, []byte{'\t'}))
	}
	return o.w.Write(body)
}

func (o *output) flush() error {
	if err := o.w.Flush(); err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	return nil
}

// torn warns of messages that a reader of the output takes for several.
func (o *output) torn(w io.Writer) {
	if n := o.w.Torn(); n > 0 {
		fmt.Fprintf(w, "%d messages held the byte that ends a message, and read as several: --framing length keeps them apart\n", n)
	}
}

// topics is the flags for the topics of what is read.
type topics struct {
	topic    string // of all messages
	prefixed bool   // each message begins with its own
}

func (t *topics) check(f *frames) error {
	switch {
	case t.prefixed && t.topic != "":
		return exit.Usage(errors.New("--topic and --topics exclude each other"))
	case t.prefixed && f.name == framing.Raw.String():
		return exit.Usage(errors.New("--topics is not for --framing raw"))
	}
	return nil
}

// of returns the topic of a message, and what of the message is its body.
func (t *topics) of(message []byte) (topic string, body []byte) {
	if !t.prefixed {
		return t.topic, message
	}
	before, after, found := bytes.Cut(message, []byte{'\t'})
	if !found {
		return "", message
	}
	return string(before), after
}
