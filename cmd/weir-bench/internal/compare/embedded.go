package compare

import (
	"bufio"
	"context"
	_ "embed" // the script
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/weir-agent/weir/cmd/weir-bench/internal/load"
)

// sqliteScript is the queue on SQLite, for the interpreter that every machine has.
//
//go:embed sqlite.py
var sqliteScript []byte

// Embedded returns the systems that are libraries: a program of ours does the work in its own process, so that no socket is in between.
func Embedded() []System {
	return []System{
		{Name: "SQLite", Setting: "in process (Python), WAL, synchronous=FULL, an insert a transaction; in flight: that many inserts a transaction"},
		{Name: "bbolt", Setting: "in process, DB.Batch; in flight: that many puts a transaction"},
	}
}

// RunEmbedded runs one of them. Its program prints a line for each transaction: nanoseconds and records.
func RunEmbedded(ctx context.Context, name, dir string, l Load) (load.Result, error) {
	program, args := "bin/bolt-bench", []string(nil)
	if name == "SQLite" {
		script := filepath.Join(dir, "sqlite.py")
		if err := os.WriteFile(script, sqliteScript, 0o600); err != nil {
			return load.Result{}, fmt.Errorf("compare: %w", err)
		}
		program, args = "python3", []string{script}
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return load.Result{}, fmt.Errorf("%w: %s", ErrMissing, program)
	}
	args = append(args, dir, strconv.Itoa(l.Connections), strconv.Itoa(l.InFlight), strconv.Itoa(l.Bytes), fmt.Sprint(l.Duration.Seconds()))
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return load.Result{}, fmt.Errorf("compare: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return load.Result{}, fmt.Errorf("compare: %w", err)
	}
	out := load.Result{Latency: load.NewHistogram(), Elapsed: l.Duration}
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		var ns, records int64
		if _, err := fmt.Sscan(lines.Text(), &ns, &records); err != nil {
			return out, fmt.Errorf("compare: %s says %q: %w", program, lines.Text(), err)
		}
		_ = out.Latency.RecordValue(min(ns, int64(time.Minute))) // in range
		out.Records += records
	}
	if err := cmd.Wait(); err != nil {
		return out, fmt.Errorf("compare: %s: %w", program, err)
	}
	return out, lines.Err()
}
