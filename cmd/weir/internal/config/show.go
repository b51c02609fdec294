package config

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"strings"
	"time"
)

// Setting is the effective value of a key and where it comes from.
type Setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`  // as a file has it; secrets are left out
	Origin string `json:"origin"` // "default", FILE:LINE, a variable or a flag
}

// Settings returns every key with its effective value, and the error that Load would return.
func Settings(src Source) ([]Setting, error) {
	l := load(src)
	var out []Setting
	for _, k := range reference {
		origin := l.origins[k.Name]
		if origin == "" {
			origin = "default"
		}
		out = append(out, Setting{k.Name, safe(k.Name, l.fields[k.Name]), origin})
	}
	return out, errors.Join(l.faults...)
}

// Changed returns the keys whose values differ, in the order of the reference.
func Changed(a, b *Config) (out []Key) {
	fa, fb := keys(reflect.ValueOf(a).Elem(), ""), keys(reflect.ValueOf(b).Elem(), "")
	for _, k := range reference {
		if plain(fa[k.Name]) != plain(fb[k.Name]) {
			out = append(out, k)
		}
	}
	return out
}

const hidden = "(hidden)"

// safe writes a value without what may be secret: values of headers, and user, password and query of an address.
func safe(key string, field reflect.Value) string {
	switch key {
	case "sink.http.headers":
		m := reflect.MakeMap(field.Type())
		for _, name := range field.MapKeys() {
			m.SetMapIndex(name, reflect.ValueOf(hidden))
		}
		return plain(m)
	case "sink.http.url", "sink.postgres.url", "sink.s3.endpoint":
		return quote(SafeURL(field.String()))
	case "sink.kafka.brokers":
		if strings.Contains(field.String(), "@") { // which no address has
			return quote(hidden)
		}
	case "sink.nats.url": // several
		return quote(SafeURLs(field.String()))
	}
	return plain(field)
}

// SafeURLs does what SafeURL does for addresses that have commas between them.
func SafeURLs(text string) string {
	var all []string
	for one := range strings.SplitSeq(text, ",") {
		all = append(all, SafeURL(strings.TrimSpace(one)))
	}
	return strings.Join(all, ",")
}

// SafeURL returns an address without user, password, fragment, and the values of its query.
func SafeURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return hidden
	}
	query := ""
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if pair != "" {
			query += "&" + name + "=" + hidden
		}
	}
	u.RawQuery, u.Fragment, u.User = "", "", nil
	if query != "" {
		return u.String() + "?" + query[1:]
	}
	return u.String()
}

// plain writes a value as a TOML file has it.
func plain(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return quote(shortDuration(x))
	case Size:
		return quote(x.String())
	case int64:
		return quote(Size(x).String())
	case string:
		return quote(x)
	case []uint32:
		return strings.ReplaceAll(fmt.Sprint(x), " ", ", ")
	case map[string]string:
		var pairs []string
		for _, name := range sortedKeys(x) {
			pairs = append(pairs, quote(name)+" = "+quote(x[name]))
		}
		return strings.TrimSpace("{ "+strings.Join(pairs, ", ")) + " }"
	default:
		return fmt.Sprint(x)
	}
}

// quote writes a basic string of TOML.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString("\\" + string(r))
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, "\\u%04X", r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// shortDuration leaves out parts that are zero: 1m for 1m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

const lineWidth = 110

// Init writes a file that has every key with its default, commented out, and what it does.
func Init(w io.Writer) error {
	cfg := Default()
	fields := keys(reflect.ValueOf(&cfg).Elem(), "")
	var b strings.Builder
	b.WriteString("# Configuration of weir. Every key is here with its default, commented out: remove the # and change the\n" +
		"# value. Sizes are written like \"64MiB\" or \"1.5GB\", times like \"200ms\" or \"5m\". Flags beat variables (WEIR_\n" +
		"# and the key, like WEIR_DRAIN_LINGER), and these beat this file. Check it: weir config check --config FILE\n")
	for _, s := range sections {
		b.WriteString("\n")
		if s.Name != "" {
			b.WriteString("[" + s.Name + "]\n")
		}
		comment(&b, s.Help)
		for _, k := range reference {
			if sectionOf(k.Name) != s.Name {
				continue
			}
			b.WriteString("\n")
			help := k.Help
			if k.Reload {
				help += " (weir reload)"
			}
			comment(&b, help)
			fmt.Fprintf(&b, "#%s = %s\n", k.Name[strings.LastIndex(k.Name, ".")+1:], plain(fields[k.Name]))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func sectionOf(key string) string {
	return key[:max(0, strings.LastIndex(key, "."))]
}

// comment writes text as lines of a comment.
func comment(b *strings.Builder, text string) {
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > lineWidth {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}
