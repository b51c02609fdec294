package brokerd

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/weir-agent/weir/weida"
)

// TestExample: the example says every default as it is.
func TestExample(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b.toml")
	if err := os.WriteFile(file, []byte(Example), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Load(file, func(*Config) {})
	if err != nil {
		t.Fatal(err)
	}
	want, err := Load("", func(c *Config) {
		c.Queues = []Queue{{Path: "/logs"}}
		c.Trust.Anybody = true
	})
	if err != nil {
		t.Fatal(err)
	}
	got.file = ""
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestOfferIsThatOfTheWeakestQueue(t *testing.T) {
	for want, queues := range map[weida.Guarantees][]string{
		{Acknowledgement: weida.AckStored, Durability: weida.Flushed}: {Flushed, Flushed},
		{Acknowledgement: weida.AckStored, Durability: weida.Written}: {Flushed, Written},
		{Acknowledgement: weida.AckAccepted}:                          {Memory, Written},
	} {
		var c Config
		for _, d := range queues {
			c.Queues = append(c.Queues, Queue{Durability: d})
		}
		if got := c.offer(); got != want {
			t.Errorf("%v: got %+v, want %+v", queues, got, want)
		}
	}
}

// What a queue has confirmed is not handed to one that keeps it less safely.
func TestDeadLettersAreAsSafe(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string
		fault    bool
	}{
		"flushed to flushed": {Flushed, Flushed, false},
		"written to flushed": {Written, Flushed, false},
		"memory to memory":   {Memory, Memory, false},
		"flushed to written": {Flushed, Written, true},
		"flushed to memory":  {Flushed, Memory, true},
		"written to memory":  {Written, Memory, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load("", func(conf *Config) {
				conf.Trust.Anybody = true
				conf.Queues = []Queue{{Path: "/q", Durability: c.from, MaxAttempts: 1, DeadLetter: "/dead"}, {Path: "/dead", Durability: c.to}}
			})
			if got := err != nil && strings.Contains(err.Error(), "queue[0].dead_letter"); got != c.fault {
				t.Errorf("got %v", err)
			}
		})
	}
}
