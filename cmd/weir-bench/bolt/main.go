// Command bolt-bench is a queue on bbolt, as weir-bench compares it; a module of its own, so that weir does not depend on bbolt.
// Arguments: DIR GOROUTINES PUTS-A-TRANSACTION BYTES SECONDS. It prints a line for each transaction: nanoseconds and records.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
)

func main() {
	if len(os.Args) != 6 {
		log.Fatal("usage: bolt-bench DIR GOROUTINES PUTS BYTES SECONDS")
	}
	var n [4]float64
	for i := range n {
		v, err := strconv.ParseFloat(os.Args[i+2], 64)
		if err != nil {
			log.Fatal(err)
		}
		n[i] = v
	}
	if err := run(os.Args[1], int(n[0]), int(n[1]), int(n[2]), time.Duration(n[3]*float64(time.Second))); err != nil {
		log.Fatal(err)
	}
}

func run(dir string, goroutines, puts, size int, d time.Duration) error {
	db, err := bolt.Open(filepath.Join(dir, "queue.db"), 0o600, nil)
	if err != nil {
		return err
	}
	db.MaxBatchDelay = time.Millisecond
	if err := db.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("q")); return err }); err != nil {
		return err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var took []time.Duration
	var failed error
	until := time.Now().Add(d)
	for range goroutines {
		wg.Go(func() {
			var own []time.Duration
			payload := make([]byte, size)
			for time.Now().Before(until) {
				began := time.Now()
				if err := put(db, goroutines, puts, payload); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
				own = append(own, time.Since(began))
			}
			mu.Lock()
			took = append(took, own...)
			mu.Unlock()
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	w := bufio.NewWriter(os.Stdout)
	for _, t := range took {
		fmt.Fprintln(w, int64(t), puts)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return db.Close()
}

// put stores records in one transaction: a shared one where several goroutines put single records.
func put(db *bolt.DB, goroutines, puts int, payload []byte) error {
	do := func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("q"))
		b.FillPercent = 1
		for range puts {
			seq, err := b.NextSequence()
			if err != nil {
				return err
			}
			if err := b.Put(binary.BigEndian.AppendUint64(nil, seq), payload); err != nil {
				return err
			}
		}
		return nil
	}
	if goroutines > 1 {
		return db.Batch(do)
	}
	return db.Update(do)
}
