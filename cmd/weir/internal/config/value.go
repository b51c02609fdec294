package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/weir-agent/weir/internal/units"
)

// ParseSize reads a size as people write it: "64MiB", "1.5 GB", "4096".
func ParseSize(text string) (Size, error) {
	n, err := units.ParseSize(text)
	return Size(n), err
}

var (
	sizeType     = reflect.TypeFor[Size]()
	durationType = reflect.TypeFor[time.Duration]()
)

// set puts v, a value of a TOML file or the text of a flag or a variable, into the field.
func set(field reflect.Value, v any) error {
	text, isText := v.(string)
	switch {
	case field.Type() == durationType:
		if !isText {
			return fmt.Errorf(`%v is not a duration: write it with a unit, like "200ms", "30s" or "5m"`, v)
		}
		d, err := units.ParseDuration(text)
		field.SetInt(int64(d))
		return err
	case field.Type() == sizeType, field.Kind() == reflect.Int64:
		return setSize(field, v)
	}
	switch field.Kind() {
	case reflect.String:
		if !isText {
			return fmt.Errorf("%v is not text: put it in quotes", v)
		}
		field.SetString(text)
		return nil
	case reflect.Bool:
		return setBool(field, v)
	case reflect.Int, reflect.Uint32:
		return setInt(field, v)
	case reflect.Slice:
		return setList(field, v)
	case reflect.Map:
		return setMap(field, v)
	}
	return fmt.Errorf("a field of kind %s cannot be configured", field.Kind())
}

func setSize(field reflect.Value, v any) error {
	switch v := v.(type) {
	case int64:
		field.SetInt(v)
		return nil
	case string:
		n, err := ParseSize(v)
		field.SetInt(int64(n))
		return err
	}
	return fmt.Errorf(`%v is not a size: write it like 4096 or "64MiB"`, v)
}

func setBool(field reflect.Value, v any) error {
	switch v := v.(type) {
	case bool:
		field.SetBool(v)
		return nil
	case string:
		if b, err := strconv.ParseBool(v); err == nil {
			field.SetBool(b)
			return nil
		}
	}
	return fmt.Errorf("%v is not true or false", v)
}

func setInt(field reflect.Value, v any) error {
	n, ok := v.(int64)
	if text, isText := v.(string); isText {
		var err error
		n, err = strconv.ParseInt(text, 10, 64)
		ok = err == nil
	}
	if !ok {
		return fmt.Errorf("%v is not a whole number", v)
	}
	if field.Kind() == reflect.Uint32 {
		if n < 0 || n > math.MaxUint32 {
			return fmt.Errorf("%d is out of range", n)
		}
		field.SetUint(uint64(n))
		return nil
	}
	field.SetInt(n)
	return nil
}

func setList(field reflect.Value, v any) error {
	var items []any
	switch v := v.(type) {
	case []any:
		items = v
	case string: // a variable: values with commas between them
		for _, s := range strings.Split(v, ",") {
			items = append(items, strings.TrimSpace(s))
		}
	default:
		return fmt.Errorf("%v is not a list", v)
	}
	list := reflect.MakeSlice(field.Type(), len(items), len(items))
	for i, it := range items {
		if err := set(list.Index(i), it); err != nil {
			return err
		}
	}
	field.Set(list)
	return nil
}

func setMap(field reflect.Value, v any) error {
	table, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%v is not a table of names and texts", v)
	}
	m := reflect.MakeMap(field.Type())
	for key, item := range table {
		text, ok := item.(string)
		if !ok {
			return fmt.Errorf("%s: %v is not text: put it in quotes", key, item)
		}
		m.SetMapIndex(reflect.ValueOf(key), reflect.ValueOf(text))
	}
	field.Set(m)
	return nil
}
