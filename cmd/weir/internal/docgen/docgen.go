package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/weir-agent/weir/cmd/weir/internal/cli"
	"github.com/weir-agent/weir/cmd/weir/internal/config"
)

// write writes into each folder that is not empty.
func write(man, docs string) error {
	if man != "" {
		if err := os.MkdirAll(man, 0o755); err != nil {
			return err
		}
		root := cli.Root()
		root.DisableAutoGenTag = true
		header := &doc.GenManHeader{Title: "WEIR", Section: "1", Source: "weir", Manual: "weir", Date: &time.Time{}}
		if err := doc.GenManTree(root, header, man); err != nil {
			return err
		}
	}
	if docs == "" {
		return nil
	}
	for name, text := range map[string]string{"configuration.md": configuration(), "commands.md": commands()} {
		if err := os.WriteFile(filepath.Join(docs, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// configuration is the reference of all keys.
func configuration() string {
	var b strings.Builder
	b.WriteString("# Configuration\n\n" +
		"Written from the code by `make docs`. `weir config init FILE` writes a file with all of this in comments, `weir config check` tells every\n" +
		"fault at once, `weir config show` prints the values in force and where each comes from.\n\n" +
		"The file is TOML. Flags beat variables, variables beat the file, the file beats the defaults. The variable of a key is `WEIR_` and the\n" +
		"key in capitals with underscores: `WEIR_DRAIN_LINGER` for `drain.linger`. Sizes are written like `64MiB` or `1.5GB`, times like `200ms`,\n" +
		"`1h30m` or `7d`. An unknown key is an error. Keys marked *reload* are put into force by `weir reload` or SIGHUP; all others need a restart.\n")
	settings, err := config.Settings(config.Source{})
	if err != nil {
		panic(err) // the defaults are tested
	}
	value := map[string]string{}
	for _, s := range settings {
		value[s.Key] = s.Value
	}
	for _, s := range config.Sections() {
		if s.Name == "" {
			b.WriteString("\n## Before the first section\n")
		} else {
			fmt.Fprintf(&b, "\n## [%s]\n", s.Name)
		}
		fmt.Fprintf(&b, "\n%s\n\n| key | default | what it does |\n|---|---|---|\n", s.Help)
		for _, k := range config.Reference() {
			if k.Section() != s.Name {
				continue
			}
			notes := ""
			if k.Flag != "" {
				notes += fmt.Sprintf(" Flag `--%s`.", k.Flag)
			}
			if k.Variable != "" {
				notes += fmt.Sprintf(" Also `%s`.", k.Variable)
			}
			if k.Reload {
				notes += " *reload*"
			}
			fmt.Fprintf(&b, "| `%s` | `%s` | %s%s |\n", k.Name[len(k.Section()):][min(1, len(k.Section())):], value[k.Name], k.Help, notes)
		}
	}
	return b.String()
}

// commands is the reference of all commands.
func commands() string {
	var b strings.Builder
	b.WriteString("# Commands\n\nWritten from the code by `make docs`. Results go to standard output, the rest to standard error. The exit status is 0 where all was done, 1 where\n" +
		"something failed, 2 where usage or configuration is at fault. `weir completion bash|zsh|fish` prints completion for a shell.\n")
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Hidden || sub.Name() == "completion" || sub.Name() == "help" {
				continue
			}
			if sub.Runnable() {
				command(&b, sub)
			}
			walk(sub)
		}
	}
	walk(cli.Root())
	return b.String()
}

func command(b *strings.Builder, c *cobra.Command) {
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n```text\n%s\n\n%s\n", c.CommandPath(), text, c.UseLine(), strings.TrimRight(c.Example, "\n"))
	if flags := c.Flags(); flags.HasFlags() {
		b.WriteString("\n")
		flags.VisitAll(func(f *pflag.Flag) {
			if !inherited(f.Name) {
				fmt.Fprintf(b, "  --%-16s %s\n", f.Name, f.Usage)
			}
		})
	}
	b.WriteString("```\n")
}

// inherited tells the flags that every command has which reads the configuration.
func inherited(name string) bool {
	if name == "help" {
		return true
	}
	for _, k := range config.Reference() {
		if k.Flag == name {
			return true
		}
	}
	return false
}
