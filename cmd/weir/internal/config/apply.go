package config

import "reflect"

// Apply takes from next what a reload may change, and returns the keys that it took and those that differ
// and need a restart.
func (c *Config) Apply(next *Config) (changed, restart []Key) {
	to, from := keys(reflect.ValueOf(c).Elem(), ""), keys(reflect.ValueOf(next).Elem(), "")
	for _, k := range Changed(c, next) {
		if !k.Reload {
			restart = append(restart, k)
			continue
		}
		to[k.Name].Set(from[k.Name])
		changed = append(changed, k)
	}
	return changed, restart
}
