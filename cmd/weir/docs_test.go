package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-agent/weir/sinks/kafkasink/kafkatest"
	"github.com/weir-agent/weir/sinks/pgsink/pgtest"
)

// TestReferencesAreOfTheCode: docs/configuration.md and docs/commands.md are what docgen writes, and every command has a manual page.
func TestReferencesAreOfTheCode(t *testing.T) {
	out := t.TempDir()
	man := filepath.Join(out, "man")
	cmd := exec.CommandContext(t.Context(), "go", "run", "./internal/docgen", "-docs", out, "-man", man)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, name := range []string{"configuration.md", "commands.md"} {
		want, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("../../docs", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("docs/%s is not what the code says: run make docs", name)
		}
	}
	commands, err := os.ReadFile(filepath.Join(out, "commands.md"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for section := range strings.SplitSeq(string(commands), "\n## ") {
		name, text, ok := strings.Cut(section, "\n")
		if !ok || !strings.HasPrefix(name, "weir ") {
			continue
		}
		n++
		if !strings.Contains(text, "\n  "+name) && !strings.Contains(text, "| "+name) {
			t.Errorf("%s has no example", name)
		}
		page := filepath.Join(man, strings.ReplaceAll(name, " ", "-")+".1")
		if content, err := os.ReadFile(page); err != nil || !bytes.Contains(content, []byte(".SH EXAMPLE")) {
			t.Errorf("%s: %v, or without an example", page, err)
		}
	}
	if n < 20 {
		t.Errorf("%d commands only", n)
	}
}

// TestCompletion: each shell gets a script that knows the commands.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		out, err := weirOn(t, t.TempDir(), "completion", shell)
		if err != nil || len(out) < 1000 {
			t.Errorf("%s: %v, %d bytes", shell, err, len(out))
		}
	}
	out, err := weirOn(t, t.TempDir(), "__complete", "deadletter", "")
	if err != nil || !strings.Contains(out, "requeue") || !strings.Contains(out, "drop") {
		t.Errorf("completion of deadletter: %v\n%s", err, out)
	}
}

// tested are the documents whose commands are run, each in a folder of its own.
func tested(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	ofSinks, err := filepath.Glob("../../docs/sinks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	out := []string{"../../README.md"}
	for _, file := range append(files, ofSinks...) {
		switch strings.TrimPrefix(file, "../../docs/") {
		case "configuration.md", "commands.md": // written from the code
		case "performance.md", "weida.md": // held by others
		default:
			out = append(out, file)
		}
	}
	return out
}

// block is a fenced block of a document, or a check behind one that its reader does not see: <!-- then: COMMAND -->.
type block struct {
	language, text string
	line           int
}

func blocksOf(t *testing.T, file string) (blocks []block) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for i, line := range strings.Split(string(content), "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		check, isCheck := strings.CutPrefix(line, "<!-- then: ")
		switch {
		case isFence && !inside:
			blocks = append(blocks, block{language: fence, line: i + 1})
			inside = true
		case isFence:
			inside = false
		case inside:
			blocks[len(blocks)-1].text += line + "\n"
		case isCheck:
			blocks = append(blocks, block{language: "sh", text: strings.TrimSuffix(check, " -->") + "\n", line: i + 1})
		}
	}
	return blocks
}

// needs skips the test of a document whose commands need a program that is not here: <!-- needs: PROGRAM PROGRAM -->. It returns the variables
// that these programs need: for psql, those of a server that runs as long as the test. Of this tree's own programs weida is built into bin,
// and those of Kafka are made from its jars.
func needs(t *testing.T, file, bin string) (env []string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, rest, ok := strings.Cut(string(content), "<!-- needs: "); ok {
		programs, _, _ := strings.Cut(rest, " -->")
		for program := range strings.FieldsSeq(programs) {
			if program == "weida" {
				if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../weida").CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				continue
			}
			if strings.HasPrefix(program, "kafka-") {
				kafkatest.Program(t, bin, program)
				continue
			}
			tool(t, program, "or go install: "+filepath.Base(file)+" says how")
			if program == "psql" {
				server := pgtest.Start(t, "")
				_, port, _ := strings.Cut(server.Address, ":")
				env = append(env, "PGHOST="+server.Dir, "PGPORT="+port, "PGUSER=weir", "PGDATABASE=weir")
			}
		}
	}
	return env
}

// script turns the blocks of a document into one that bash runs. make is not run, as the tests run within it; its target must
// exist, and make run starts the daemon, as it does.
func script(t *testing.T, file string, blocks []block) string {
	t.Helper()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait || true' EXIT\n")
	started := false
	for _, one := range blocks {
		if one.language != "sh" {
			continue
		}
		fmt.Fprintf(&b, "echo '--- %s:%d' >&2\n", filepath.Base(file), one.line)
		for line := range strings.Lines(one.text) {
			target, isMake := strings.CutPrefix(strings.TrimSpace(strings.SplitN(line, "#", 2)[0]), "make ")
			switch {
			case isMake && !strings.Contains(string(makefile), "\n"+target+":"):
				t.Errorf("%s:%d: the Makefile has no target %s", file, one.line, target)
			case isMake && target == "run":
				b.WriteString("bin/weir run & bin/weir health --wait 10s\n")
				started = true
			case isMake:
			case started && strings.HasPrefix(line, "bin/weir receive"): // the reader was told to stop the first one
				b.WriteString("kill %1; wait %1\n" + line)
				started = false
			default:
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

// TestDocumentsWork runs every command of the documents, checks every configuration in them, and follows their links.
func TestDocumentsWork(t *testing.T) {
	bash := tool(t, "bash", "bash")
	for _, file := range tested(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(binary, filepath.Join(dir, "bin", "weir")); err != nil {
				t.Fatal(err)
			}
			blocks := blocksOf(t, file)
			for _, one := range blocks {
				if one.language != "toml" {
					continue
				}
				path := filepath.Join(t.TempDir(), "block.toml")
				writeFile(t, path, one.text)
				if out, err := exec.Command(binary, "config", "check", "--config", path).CombinedOutput(); err != nil {
					t.Errorf("%s:%d: %v\n%s", file, one.line, err, out)
				}
			}
			env := needs(t, file, filepath.Join(dir, "bin"))
			text := script(t, file, blocks)
			for _, address := range []string{"127.0.0.1:8080", "127.0.0.1:4222", "127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:7070"} { // of an endpoint, NATS, Kafka and S3
				text = strings.ReplaceAll(text, address, freeAddress(t))
			}
			text = strings.ReplaceAll(text, "weida broker run", "weida broker run --listen "+freeAddress(t))
			cmd := exec.CommandContext(t.Context(), bash, "-c", text)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "WEIR_ADMIN=127.0.0.1:0")
			cmd.Env = append(cmd.Env, env...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestLinks: what a document links to in this tree is there, headings too.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	n := 0
	for _, file := range append(tested(t), "../../CONTRIBUTING.md", "../../docs/performance.md") {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(content), -1) {
			path, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			n++
			target := file
			if path != "" {
				target = filepath.Join(filepath.Dir(file), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", file, m[1], err)
				continue
			}
			if heading == "" {
				continue
			}
			text, err := os.ReadFile(target)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(strings.ToLower(string(text)), "# "+strings.ReplaceAll(heading, "-", " ")+"\n") {
				t.Errorf("%s links to %s, which has no such heading", file, m[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d links were found", n)
	}
}
