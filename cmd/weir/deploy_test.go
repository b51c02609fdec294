package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// tool returns the path of a program that a test needs; where it is missing the test is left out, or fails where CI says that it must be there.
func tool(t *testing.T, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("missing: %s", name)
	}
	t.Skipf("left out, for want of %s (Debian: apt-get install %s)", name, pkg)
	return ""
}

// TestEverySeriesExists: each series that a panel or a rule asks for is one that a daemon shows, from its start on.
func TestEverySeriesExists(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	_, addr := startOpen(t, dir)
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	shown, helped := map[string]bool{}, map[string]bool{}
	var text strings.Builder
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		line := lines.Text()
		text.WriteString(line + "\n")
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			helped[name] = len(help) > 10
		}
		shown[regexp.MustCompile(`^[a-z_:]+`).FindString(line)] = true
	}
	for name, ok := range helped {
		if !ok {
			t.Errorf("%s has no help", name)
		}
	}
	asked := regexp.MustCompile(`\b(weir|process)_[a-z_]+`)
	for _, file := range []string{"../../deploy/grafana/weir.json", "../../deploy/prometheus/weir.rules.yml"} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := asked.FindAllString(string(content), -1)
		if len(names) < 15 {
			t.Errorf("%s asks for %d series only", file, len(names))
		}
		for _, name := range names {
			if !shown[name] {
				t.Errorf("%s asks for %s, which no daemon shows", file, name)
			}
		}
	}
	t.Run("promtool", func(t *testing.T) {
		check := exec.Command(tool(t, "promtool", "prometheus"), "check", "metrics")
		check.Stdin = strings.NewReader(text.String())
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("check metrics: %v\n%s", err, out)
		}
	})
}

func TestAlertRules(t *testing.T) {
	promtool := tool(t, "promtool", "prometheus")
	for _, args := range [][]string{{"check", "rules", "weir.rules.yml"}, {"test", "rules", "weir.rules.test.yml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = "../../deploy/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestDashboard: every panel has a title, says what it shows, has its place for itself and asks for something.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../deploy/grafana/weir.json")
	if err != nil {
		t.Fatal(err)
	}
	type place struct{ X, Y, W, H int }
	var board struct {
		Panels []struct {
			ID                 int
			Title, Description string
			GridPos            place
			Targets            []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	taken := map[[2]int]string{}
	for _, p := range board.Panels {
		if p.Title == "" || p.Description == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %+v", p)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if taken[at] != "" {
					t.Fatalf("%q and %q are at the same place", p.Title, taken[at])
				}
				taken[at] = p.Title
			}
		}
	}
}

// maxExposure is what systemd-analyze may find at most, of 10.
const maxExposure = 2.0

// TestUnit: the units parse, and what they leave open is little.
func TestUnit(t *testing.T) {
	analyze := tool(t, "systemd-analyze", "systemd")
	for _, unit := range []string{"weir.service", "weir@.service", "weida-broker.service"} {
		path := filepath.Join("../../deploy/systemd", unit)
		out, err := exec.Command(analyze, "security", "--offline=true", path).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
		m := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
		if m == nil {
			t.Fatalf("no verdict on %s:\n%s", unit, out)
		}
		level, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil || level > maxExposure {
			t.Errorf("%s: exposure %s, want at most %v", unit, m[1], maxExposure)
		}
		out, _ = exec.Command(analyze, "verify", "--man=no", path).CombinedOutput() // its status tells of other units, too
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, unit) && !regexp.MustCompile(`/usr/bin/weir is not executable|/usr/bin/weida is not executable`).MatchString(line) {
				t.Errorf("%s: %s", unit, line)
			}
		}
	}
}

// TestCountersAddUp: accepted = delivered + pending + dead-lettered + expired + quarantined, in the series of a daemon that has some of each
// that a healthy disk gives, before and after a restart.
func TestCountersAddUp(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	end := newWayward(t)
	p, addr := startOpen(t, dir, "--sink", "http", "--sink-url", end.URL)
	for _, text := range []string{"one", "bad two", "three", "bad four"} {
		pushText(t, dir, text)
	}
	await(t, dir, func(s shownStatus) bool { return s.Backlog == 0 })
	if out, err := weirOn(t, dir, "drain", "pause"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pushText(t, dir, "five")
	got := seriesOf(t, addr)
	if got["weir_appended_records_total"] != 5 || got["weir_delivered_records_total"] != 2 || got["weir_backlog_records"] != 1 ||
		got["weir_dead_lettered_records_total"] != 2 || got["weir_acked_records_total"] != 5 || got["weir_dead_letters"] != 2 || got["weir_paused"] != 1 {
		t.Errorf("series %v", got)
	}
	sum := func(got map[string]float64, accepted, before float64) {
		t.Helper()
		out := got["weir_delivered_records_total"] + got["weir_backlog_records"] + got["weir_dead_lettered_records_total"] + got["weir_expired_records_total"] + got["weir_quarantined_records_total"]
		if accepted+before != out {
			t.Errorf("%v accepted and %v from before, %v accounted for", accepted, before, out)
		}
	}
	sum(got, got["weir_appended_records_total"], 0)
	p.kill(t)
	end.down.Store(true)
	_, addr = startOpen(t, dir, "--sink", "http", "--sink-url", end.URL)
	pushText(t, dir, "six")
	got = seriesOf(t, addr)
	before := got["weir_backlog_records"] - 1 // that of one drained record may not have been stored before the kill
	if before < 1 || got["weir_dead_letters"] != 2 {
		t.Errorf("after a restart: series %v", got)
	}
	sum(got, got["weir_appended_records_total"], before)
}

// seriesOf returns the values of the series of weir; those of several labels are added up.
func seriesOf(t *testing.T, addr string) map[string]float64 {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || !strings.HasPrefix(fields[0], "weir_") {
			continue
		}
		v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			t.Fatal(err)
		}
		if v < 0 {
			t.Errorf("%s is negative", lines.Text())
		}
		name, _, _ := strings.Cut(fields[0], "{")
		got[name] += v
	}
	return got
}
