// Package units reads sizes and times as people write them in configurations and flags.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// byName is what a unit of a size is worth; letters in lower case.
var byName = map[string]int64{
	"": 1, "b": 1,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}

// ParseSize reads a size as people write it: "64MiB", "1.5 GB", "4096".
func ParseSize(text string) (int64, error) {
	t := strings.TrimSpace(text)
	i := strings.IndexFunc(t, func(r rune) bool { return (r < '0' || r > '9') && r != '.' && r != '-' })
	if i < 0 {
		i = len(t)
	}
	unit, ok := byName[strings.ToLower(strings.TrimSpace(t[i:]))]
	n, err := strconv.ParseFloat(t[:i], 64)
	if !ok || err != nil || math.Abs(n)*float64(unit) >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a size: write a number of bytes, or one with KB, MB, GB, TB, KiB, MiB, GiB or TiB", text)
	}
	return int64(n * float64(unit)), nil
}

// ParseDuration reads a time as people write it: "200ms", "1.5h", "1h 30m", "7d". A day has 24 hours, a week 7 days.
func ParseDuration(text string) (time.Duration, error) {
	t := strings.ReplaceAll(text, " ", "")
	var days float64
	for _, u := range []struct {
		name string
		days float64
	}{{"w", 7}, {"d", 1}} {
		head, rest, ok := strings.Cut(t, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(head, 64)
		if err != nil || !(math.Abs(n) <= maxDays) { // NaN, too
			return 0, notDuration(text)
		}
		days += n * u.days
		t = rest
	}
	if t == "" && days != 0 {
		t = "0"
	}
	d, err := time.ParseDuration(t)
	if err != nil || math.Abs(days) > maxDays || d > 0 && days > maxDays-d.Hours()/24 {
		return 0, notDuration(text)
	}
	return d + time.Duration(days*24*float64(time.Hour)), nil
}

// maxDays is under the largest time there is.
const maxDays = 100_000

func notDuration(text string) error {
	return fmt.Errorf(`%q is not a duration: write it like "200ms", "30s", "5m" or "7d"`, text)
}
