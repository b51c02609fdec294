package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// Source is where the parts of a configuration come from. Flags beat Env beats File.
type Source struct {
	File  string            // path of a TOML file; empty for none
	Env   []string          // "NAME=value", as of os.Environ
	Flags map[string]string // by key, like "socket.path"
}

// aliases are the variables with a short name.
var aliases = map[string]string{
	"WEIR_DATA_DIR": "wab.dir", "WEIR_SOCKET": "socket.path", "WEIR_SINK": "sink.type",
	"WEIR_SINK_URL": "sink.http.url", "WEIR_ADMIN": "admin.listen",
}

// Load puts a configuration together and checks it. All faults are in the one error, each on a line of its own with where
// it is. It reads the file and nothing else.
func Load(src Source) (Config, error) {
	cfg := Default()
	fields := keys(reflect.ValueOf(&cfg).Elem(), "")
	var faults []error
	if src.File != "" {
		faults = append(faults, loadFile(src.File, fields)...)
	}
	faults = append(faults, loadEnv(src.Env, fields)...)
	for _, key := range sortedKeys(src.Flags) {
		if err := set(fields[key], src.Flags[key]); err != nil {
			faults = append(faults, fmt.Errorf("flag for %s: %w", key, err))
		}
	}
	if len(faults) == 0 {
		faults = append(faults, cfg.check()...)
	}
	return cfg, errors.Join(faults...)
}

// keys returns the field of each key below v.
func keys(v reflect.Value, prefix string) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("toml")
		if name == "" || name == "-" {
			continue
		}
		if f := v.Field(i); f.Kind() == reflect.Struct {
			for k, f := range keys(f, prefix+name+".") {
				out[k] = f
			}
		} else {
			out[prefix+name] = f
		}
	}
	return out
}

// Keys returns the names of all keys, sorted.
func Keys() []string {
	return sortedKeys(keys(reflect.ValueOf(&Config{}).Elem(), ""))
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func loadFile(path string, fields map[string]reflect.Value) (faults []error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return []error{fmt.Errorf("configuration: %w", err)}
	}
	var tree map[string]any
	if err := toml.Unmarshal(text, &tree); err != nil {
		if perr, ok := errors.AsType[toml.ParseError](err); ok {
			return []error{fmt.Errorf("%s:%d: %s", path, perr.Position.Line, perr.Message)}
		}
		return []error{fmt.Errorf("%s: %w", path, err)}
	}
	lines := locate(string(text))
	found := map[string]error{}
	walk(tree, "", fields, func(key string, err error) { found[key] = err })
	wrong := sortedKeys(found)
	slices.SortStableFunc(wrong, func(a, b string) int { return lines[a] - lines[b] })
	for _, key := range wrong {
		faults = append(faults, fmt.Errorf("%s:%d: %s: %w", path, lines[key], key, found[key]))
	}
	return faults
}

// walk sets the field of each key of the tree and tells the faults.
func walk(tree map[string]any, prefix string, fields map[string]reflect.Value, fault func(key string, err error)) {
	for _, name := range sortedKeys(tree) {
		key, v := prefix+name, tree[name]
		if field, ok := fields[key]; ok {
			if err := set(field, v); err != nil {
				fault(key, err)
			}
			continue
		}
		section := slices.ContainsFunc(sortedKeys(fields), func(k string) bool { return strings.HasPrefix(k, key+".") })
		table, isTable := v.(map[string]any)
		switch {
		case section && isTable:
			walk(table, key+".", fields, fault)
		case section:
			fault(key, errors.New("is a section: write ["+key+"] and its keys below"))
		case isTable:
			fault(key, unknownSection(key, fields))
		default:
			fault(key, unknown(key, fields))
		}
	}
}

// tooFar is a distance at which two names are no misspelling of each other.
const tooFar = 4

// unknownSection is the error for a section that does not exist, with the nearest one that does.
func unknownSection(name string, fields map[string]reflect.Value) error {
	best, at := "", tooFar
	for _, k := range sortedKeys(fields) {
		for i := strings.LastIndex(k, "."); i > 0; i = strings.LastIndex(k[:i], ".") {
			if d := distance(name, k[:i]); d < at {
				best, at = k[:i], d
			}
		}
	}
	if best == "" {
		return errors.New("unknown section")
	}
	return fmt.Errorf("unknown section: did you mean [%s]?", best)
}

// unknown is the error for a key that does not exist, with the nearest one that does.
func unknown(key string, fields map[string]reflect.Value) error {
	best, at := "", tooFar
	for _, k := range sortedKeys(fields) {
		if d := distance(key, k); d < at {
			best, at = k, d
		}
		if last := k[strings.LastIndex(k, ".")+1:]; last == key[strings.LastIndex(key, ".")+1:] && at > 1 {
			best, at = k, 1
		}
	}
	if best == "" {
		return errors.New("unknown key")
	}
	return fmt.Errorf("unknown key: did you mean %s?", best)
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// locate returns the line of each key of a TOML text that parses.
func locate(text string) map[string]int {
	lines := map[string]int{}
	section := ""
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = bare(strings.Trim(strings.SplitN(name, "]", 2)[0], "[")) + "."
			mark(lines, strings.TrimSuffix(section, "."), i+1)
			continue
		}
		if name, _, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			mark(lines, section+bare(name), i+1)
		}
	}
	return lines
}

func mark(lines map[string]int, key string, line int) {
	for {
		if _, ok := lines[key]; !ok {
			lines[key] = line
		}
		i := strings.LastIndex(key, ".")
		if i < 0 {
			return
		}
		key = key[:i]
	}
}

// bare normalises a dotted key.
func bare(key string) string {
	parts := strings.Split(key, ".")
	for i, p := range parts {
		parts[i] = strings.Trim(strings.TrimSpace(p), `"'`)
	}
	return strings.Join(parts, ".")
}

// envName is the variable of a key: WEIR_SOCKET_PATH for socket.path.
func envName(key string) string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

func loadEnv(env []string, fields map[string]reflect.Value) (faults []error) {
	byName := map[string]string{}
	for key := range fields {
		byName[envName(key)] = key
	}
	for name, key := range aliases {
		byName[name] = key
	}
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		key, ok := byName[name]
		if !ok || value == "" {
			continue
		}
		if err := set(fields[key], value); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
		}
	}
	return faults
}
