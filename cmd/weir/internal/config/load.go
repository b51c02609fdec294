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

// fault is what is wrong with a key.
type fault struct {
	key string
	err error
}

// loaded is a configuration with what is known of how it came to be.
type loaded struct {
	cfg     Config
	fields  map[string]reflect.Value // of cfg, by key
	origins map[string]string        // of the keys that are not defaults: FILE:LINE, a variable or a flag
	faults  []error                  // each begins with where it is
	wrong   map[string]bool          // keys of these faults
}

// Load puts a configuration together and checks it. All faults are in the one error, each on a line of its own with where
// it is. It reads the file and nothing else.
func Load(src Source) (Config, error) {
	l := load(src)
	return l.cfg, errors.Join(l.faults...)
}

func load(src Source) *loaded {
	l := &loaded{cfg: Default(), origins: map[string]string{}, wrong: map[string]bool{}}
	l.fields = keys(reflect.ValueOf(&l.cfg).Elem(), "")
	if src.File != "" {
		l.loadFile(src.File)
	}
	sink := l.sink(src)
	l.loadEnv(src.Env, sink)
	for _, key := range sortedKeys(src.Flags) {
		l.set(ofSink(key, sink), "--"+flagOf(key), src.Flags[key])
	}
	for _, f := range l.cfg.check() {
		if !l.wrong[f.key] { // a value that could not be read has said so
			l.fault(l.origins[f.key], f.key, f.err)
		}
	}
	return l
}

// sink returns the type of the sink that will be in force.
func (l *loaded) sink(src Source) string {
	sink := l.cfg.Sink.Type
	for _, pair := range src.Env {
		if name, value, _ := strings.Cut(pair, "="); value != "" && (name == "WEIR_SINK" || name == EnvName("sink.type")) {
			sink = value
		}
	}
	if flag, ok := src.Flags["sink.type"]; ok {
		sink = flag
	}
	return sink
}

// ofSink returns, of the keys that share the flag and the variable of a key, the one of the sink in force; the key itself where there is none.
func ofSink(key, sink string) string {
	for _, k := range reference {
		if k.Flag != "" && k.Flag == flagOf(key) && k.Section() == "sink."+sink {
			return k.Name
		}
	}
	return key
}

// set gives a key its value, or books the fault.
func (l *loaded) set(key, origin string, v any) {
	l.origins[key] = origin
	if err := set(l.fields[key], v); err != nil {
		l.fault(origin, key, err)
	}
}

// fault books what is wrong with a key; origin is empty where nothing set it.
func (l *loaded) fault(origin, key string, err error) {
	l.wrong[key] = true
	err = fmt.Errorf("%s: %w", key, err)
	if origin != "" {
		err = fmt.Errorf("%s: %w", origin, err)
	}
	l.faults = append(l.faults, err)
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

func (l *loaded) loadFile(path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		l.faults = append(l.faults, fmt.Errorf("configuration: %w", err))
		return
	}
	var tree map[string]any
	if err := toml.Unmarshal(text, &tree); err != nil {
		if perr, ok := errors.AsType[toml.ParseError](err); ok {
			err = fmt.Errorf("%s:%d: %s", path, perr.Position.Line, perr.Message)
		} else {
			err = fmt.Errorf("%s: %w", path, err)
		}
		l.faults = append(l.faults, err)
		return
	}
	lines := locate(string(text))
	found := map[string]any{} // by key: the value, or the fault
	walk(tree, "", l.fields, func(key string, v any) { found[key] = v })
	order := sortedKeys(found)
	slices.SortStableFunc(order, func(a, b string) int { return lines[a] - lines[b] })
	for _, key := range order {
		origin := fmt.Sprintf("%s:%d", path, lines[key])
		if err, bad := found[key].(error); bad {
			l.fault(origin, key, err)
		} else {
			l.set(key, origin, found[key])
		}
	}
}

// walk gives each key of the tree to found with its value, or with an error where there is no such key.
func walk(tree map[string]any, prefix string, fields map[string]reflect.Value, found func(key string, v any)) {
	for _, name := range sortedKeys(tree) {
		key, v := prefix+name, tree[name]
		if _, ok := fields[key]; ok {
			found(key, v)
			continue
		}
		section := slices.ContainsFunc(sortedKeys(fields), func(k string) bool { return strings.HasPrefix(k, key+".") })
		table, isTable := v.(map[string]any)
		switch {
		case section && isTable:
			walk(table, key+".", fields, found)
		case section:
			found(key, errors.New("is a section: write ["+key+"] and its keys below"))
		case isTable:
			found(key, unknownSection(key, fields))
		default:
			found(key, unknown(key, fields))
		}
	}
}

// tooFar returns a distance at which no name is a misspelling of this one: a third of it may be wrong.
func tooFar(name string) int {
	last := name[strings.LastIndexAny(name, "._")+1:]
	return min(4, 2+len(last)/3)
}

// unknownSection is the error for a section that does not exist, with the nearest one that does.
func unknownSection(name string, fields map[string]reflect.Value) error {
	best, at := "", tooFar(name)
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
	best, at := "", tooFar(key)
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

// EnvName is the variable of a key: WEIR_SOCKET_PATH for socket.path.
func EnvName(key string) string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// loadEnv takes what the variables say. A variable that is empty says nothing. One that begins like the variables
// of a section and names no key is a fault; other variables that begin with WEIR_ may belong to somebody else.
func (l *loaded) loadEnv(env []string, sink string) {
	byName := map[string]string{}
	for key := range l.fields {
		byName[EnvName(key)] = key
	}
	for _, k := range reference {
		if _, taken := byName[k.Variable]; k.Variable != "" && !taken {
			byName[k.Variable] = ofSink(k.Name, sink)
		}
	}
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		key, ok := byName[name]
		switch {
		case value == "":
		case ok:
			l.set(key, name, value)
		case ofSection(name):
			best, at := "", tooFar(name)
			for _, known := range sortedKeys(byName) {
				if d := distance(name, known); d < at {
					best, at = known, d
				}
			}
			hint := "weir config show lists them"
			if best != "" {
				hint = "did you mean " + best + "?"
			}
			l.faults = append(l.faults, fmt.Errorf("%s: no key has this variable: %s", name, hint))
		}
	}
}

// ofSection reports whether a variable has the form of those of a section.
func ofSection(name string) bool {
	return slices.ContainsFunc(reference, func(k Key) bool {
		section, _, nested := strings.Cut(k.Name, ".")
		return nested && strings.HasPrefix(name, EnvName(section)+"_")
	})
}
