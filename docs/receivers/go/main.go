// Command go is an endpoint for weir's raw format that keeps each record once: receiver ADDRESS FILE.
//
// A record counts as received when its line is on stable storage; only then is it answered with 200. What comes
// again under the same Idempotency-Key is answered with 200 and not kept.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
)

type line struct {
	Key  string `json:"key"`
	Body []byte `json:"body"` // base64 in JSON
}

type store struct {
	mu   sync.Mutex
	file *os.File
	seen map[string]bool
}

func open(path string) (*store, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	s := &store{file: file, seen: map[string]bool{}}
	lines := bufio.NewReader(file)
	for {
		text, err := lines.ReadBytes('\n')
		var l line
		if json.Unmarshal(text, &l) == nil {
			s.seen[l.Key] = true
		}
		if err == io.EOF {
			if len(text) > 0 { // torn by a crash: it was never answered
				_, err = file.WriteString("\n")
				return s, err
			}
			return s, nil
		} else if err != nil {
			return nil, err
		}
	}
}

func (s *store) keep(key string, body []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[key] {
		return nil
	}
	text, err := json.Marshal(line{key, body})
	if err != nil {
		return err
	}
	if _, err := s.file.Write(append(text, '\n')); err != nil {
		return err
	}
	if err := s.file.Sync(); err != nil {
		log.Fatal(err) // what a failed sync left behind is not known: start again from the file
	}
	s.seen[key] = true
	return nil
}

func main() {
	s, err := open(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 16<<20))
		if err == nil {
			err = s.keep(r.Header.Get("Idempotency-Key"), body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable) // weir sends it again
		}
	})
	fmt.Println("receiving")
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}
