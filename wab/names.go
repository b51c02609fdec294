package wab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	lockName       = "LOCK"
	instanceName   = "instance"
	quarantineName = "quarantine"
	cursorName     = "cursor"
	spareSuffix    = ".spare"
	activeSuffix   = ".wab"
	sealedSuffix   = ".wab.sealed"
	tempSuffix     = ".tmp"
)

func shardDir(n int) string { return fmt.Sprintf("shard_%02d", n) }

func parseShardDir(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, "shard_")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n >= 0 && n < maxShards && shardDir(n) == name
}

// stem is the part of a segment's name that its state does not change.
func stem(number, instance uint64) string { return fmt.Sprintf("seg_%08d-%016x", number, instance) }

// segmentName is a parsed file name of a shard's folder.
type segmentName struct {
	number   uint64
	instance uint64
	suffix   string
}

func (n segmentName) stem() string { return stem(n.number, n.instance) }

// parseSegmentName reads any name that begins as a segment's does, whatever follows;
// each of them keeps its number from being used again.
func parseSegmentName(name string) (segmentName, bool) {
	rest, ok := strings.CutPrefix(name, "seg_")
	if !ok {
		return segmentName{}, false
	}
	digits, rest, ok := strings.Cut(rest, "-")
	if !ok || len(rest) < 16 {
		return segmentName{}, false
	}
	number, err := strconv.ParseUint(digits, 10, 62)
	if err != nil || number == 0 {
		return segmentName{}, false
	}
	instance, err := strconv.ParseUint(rest[:16], 16, 64)
	if err != nil {
		return segmentName{}, false
	}
	n := segmentName{number: number, instance: instance, suffix: rest[16:]}
	return n, name == n.stem()+n.suffix
}

func randomUint64(r io.Reader) (uint64, error) {
	var b [8]byte
	for {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return 0, fmt.Errorf("wab: read random bytes: %w", err)
		}
		if n := binary.LittleEndian.Uint64(b[:]); n != 0 {
			return n, nil
		}
	}
}

var errInstance = errors.New("wab: the instance file does not hold 16 hex digits")

func parseInstance(b []byte) (uint64, error) {
	text := strings.TrimSuffix(string(b), "\n")
	n, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != 16 || n == 0 {
		return 0, errInstance
	}
	return n, nil
}
