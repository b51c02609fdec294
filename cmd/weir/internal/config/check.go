package config

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-agent/weir/sinks/filesink"
	"github.com/weir-agent/weir/sinks/kafkasink"
	"github.com/weir-agent/weir/sinks/natssink"
	"github.com/weir-agent/weir/sinks/pgsink"
	"github.com/weir-agent/weir/sinks/s3sink"
)

const maxSocketPath = 107

// check completes what depends on other keys and returns all faults. It touches no file.
func (c *Config) check() (faults []fault) {
	wrong := func(bad bool, key, format string, args ...any) {
		if bad {
			faults = append(faults, fault{key, fmt.Errorf(format, args...)})
		}
	}
	if c.Socket.Path == "" {
		c.Socket.Path = filepath.Join(c.WAB.Dir, "weir.sock")
	}
	if c.Admin.Socket == "" {
		c.Admin.Socket = filepath.Join(c.WAB.Dir, "admin.sock")
	}
	if c.Sink.File.Path == "" {
		c.Sink.File.Path = filepath.Join(c.WAB.Dir, "delivered.jsonl")
	}
	if c.Sink.Weida.IdentityDir == "" {
		c.Sink.Weida.IdentityDir = filepath.Join(c.WAB.Dir, "identity")
	}
	wrong(c.WAB.Dir == "", "wab.dir", "is empty: name a folder")
	for _, p := range []struct{ key, path string }{{"socket.path", c.Socket.Path}, {"admin.socket", c.Admin.Socket}} {
		wrong(len(p.path) > maxSocketPath, p.key, "%q has %d bytes; a socket path has at most %d: use a shorter one", p.path, len(p.path), maxSocketPath)
	}
	wrong(c.Socket.Path == c.Admin.Socket, "admin.socket", "must differ from socket.path")
	sinks := []string{SinkFile, SinkHTTP, SinkWeida, SinkKafka, SinkNATS, SinkPostgres, SinkS3, SinkDiscard}
	wrong(!slices.Contains(sinks, c.Sink.Type), "sink.type", "%q is not a sink: use %s", c.Sink.Type, anyOf(sinks))
	levels := []string{"debug", "info", "warn", "error"}
	wrong(!slices.Contains(levels, c.Log.Level), "log.level", "%q: use %s", c.Log.Level, anyOf(levels))
	formats := []string{"text", "json"}
	wrong(!slices.Contains(formats, c.Log.Format), "log.format", "%q: use %s", c.Log.Format, anyOf(formats))
	if c.Admin.Listen != "" {
		_, _, err := net.SplitHostPort(c.Admin.Listen)
		wrong(err != nil, "admin.listen", "%q is not host:port, like 127.0.0.1:9185", c.Admin.Listen)
	}
	wrong(c.Drain.BackoffMax < c.Drain.BackoffMin, "drain.backoff_max", "%v is under drain.backoff_min, %v", c.Drain.BackoffMax, c.Drain.BackoffMin)
	leftOut := func(built bool, tag string) {
		wrong(!built, "sink.type", "%q was left out of this build of weir (build tag %s)", c.Sink.Type, tag)
	}
	switch c.Sink.Type {
	case SinkHTTP:
		faults = append(faults, ofOptions(SinkHTTP, c.Sink.HTTP.Check())...)
	case SinkWeida:
		faults = append(faults, ofOptions(SinkWeida, c.Sink.Weida.Check())...)
	case SinkKafka:
		leftOut(kafkasink.Built, "nokafka")
		faults = append(faults, ofOptions(SinkKafka, c.Sink.Kafka.Check())...)
	case SinkNATS:
		leftOut(natssink.Built, "nonats")
		faults = append(faults, ofOptions(SinkNATS, c.Sink.NATS.Check())...)
	case SinkPostgres:
		leftOut(pgsink.Built, "nopostgres")
		faults = append(faults, ofOptions(SinkPostgres, c.Sink.Postgres.Check())...)
	case SinkS3:
		leftOut(s3sink.Built, "nos3")
		faults = append(faults, ofOptions(SinkS3, c.Sink.S3.Check())...)
	case SinkFile:
		files := []string{filesink.FormatJSONL, filesink.FormatLines}
		wrong(!slices.Contains(files, c.Sink.File.Format), "sink.file.format", "%q: use %s", c.Sink.File.Format, anyOf(files))
	}
	return append(faults, c.checkRanges()...)
}

// anyOf writes the choices that there are.
func anyOf(choices []string) string {
	last := len(choices) - 1
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}

// ofOptions returns what a sink found wrong with its options: errors that may be joined, each of which begins with its key.
func ofOptions(sink string, err error) (faults []fault) {
	var all []error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	} else if err != nil {
		all = []error{err}
	}
	for _, err := range all {
		key, text, _ := strings.Cut(err.Error(), ": ")
		if (key == "sink."+sink+".url" || key == "sink.kafka.brokers") && text == "is required" {
			text = "is required with the " + sink + " sink: give --sink-url or set it"
		}
		faults = append(faults, fault{key, errors.New(text)})
	}
	return faults
}

func (c *Config) checkRanges() (faults []fault) {
	fields := keys(reflect.ValueOf(c).Elem(), "")
	for _, k := range reference {
		if k.Min == 0 && k.Max == 0 || k.ofSink() {
			continue
		}
		field := fields[k.Name]
		say := func(n int64) string {
			v := reflect.New(field.Type()).Elem()
			v.SetInt(n)
			return plain(v)
		}
		if n := field.Int(); n < k.Min {
			faults = append(faults, fault{k.Name, fmt.Errorf("%s is under the least, %s", say(n), say(k.Min))})
		} else if n > k.Max {
			faults = append(faults, fault{k.Name, fmt.Errorf("%s is over the most, %s", say(n), say(k.Max))})
		}
	}
	return faults
}

// ErrUsage marks an error of usage or configuration: exit status 2.
var ErrUsage = errors.New("usage")
