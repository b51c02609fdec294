package brokerd

import (
	"os"
	"path/filepath"
	"reflect"
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
