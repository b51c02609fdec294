package weida

import (
	"errors"
	"strings"
	"testing"
)

func TestParseAddress(t *testing.T) {
	digits := strings.Repeat("0123456789abcdef", 4)
	pin, err := ParseFingerprint("sha256:" + digits)
	if err != nil {
		t.Fatal(err)
	}
	longest := "/" + strings.Repeat("x", MaxPathBytes-1)
	tests := []struct {
		name, in string
		want     Address
		err      error
	}{
		{"name", "weida://host:7443/jobs", Address{Host: "host", Port: 7443, Path: "/jobs"}, nil},
		{"IPv4", "weida://10.0.0.8:1/samples", Address{Host: "10.0.0.8", Port: 1, Path: "/samples"}, nil},
		{"IPv6", "weida://[::1]:65535/x", Address{Host: "::1", Port: 65535, Path: "/x"}, nil},
		{"pinned", "weida://sha256:" + digits + "@h:2/x", Address{Pin: pin, Pinned: true, Host: "h", Port: 2, Path: "/x"}, nil},
		{"pinned IPv6", "weida://sha256:" + digits + "@[fe80::1]:2/x", Address{Pin: pin, Pinned: true, Host: "fe80::1", Port: 2, Path: "/x"}, nil},
		{"the path is opaque", "weida://h:1/a/../*/%20?q#f@://", Address{Host: "h", Port: 1, Path: "/a/../*/%20?q#f@://"}, nil},
		{"the root", "weida://h:1/", Address{Host: "h", Port: 1, Path: "/"}, nil},
		{"longest path", "weida://h:1" + longest, Address{Host: "h", Port: 1, Path: longest}, nil},

		{"in process", "weida+inproc://a bus:1/x", Address{Carrier: OverInproc, Local: "a bus:1", Path: "/x"}, nil},
		{"a socket", "weida+unix://%2Frun%2Fa%40b%20c.sock/x", Address{Carrier: OverUnix, Local: "/run/a@b c.sock", Path: "/x"}, nil},
		{"a pipe", "weida+pipe://name/x", Address{Carrier: OverPipe, Local: "name", Path: "/x"}, nil},

		{"no socket", "weida+unix:///x", Address{}, ErrInvalidAddress},
		{"a pin before a socket", "weida+unix://sha256:" + digits + "@s/x", Address{}, ErrInvalidAddress},
		{"socket of another name space", "weida+unix://%40s/x", Address{}, ErrInvalidAddress},
		{"zero byte in the socket", "weida+unix://a%00b/x", Address{}, ErrInvalidAddress},
		{"half an escape in the socket", "weida+unix://a%2/x", Address{}, ErrInvalidAddress},
		{"socket too long", "weida+unix://" + strings.Repeat("s", 108) + "/x", Address{}, ErrInvalidAddress},
		{"no bus", "weida+inproc:///x", Address{}, ErrInvalidAddress},
		{"a pin before a bus", "weida+inproc://sha256:" + digits + "@bus/x", Address{}, ErrInvalidAddress},
		{"bus too long", "weida+inproc://" + strings.Repeat("b", 257) + "/x", Address{}, ErrInvalidAddress},
		{"newline in the bus", "weida+inproc://a\nb/x", Address{}, ErrInvalidAddress},
		{"bus without a path", "weida+inproc://bus", Address{}, ErrInvalidEndpointPath},
		{"backslash in the pipe", `weida+pipe://a\b/x`, Address{}, ErrInvalidAddress},
		{"no pipe", "weida+pipe:///x", Address{}, ErrInvalidAddress},
		{"unknown carrier", "weida+tcp://h:1/x", Address{}, ErrInvalidAddress},
		{"empty", "", Address{}, ErrInvalidAddress},
		{"no scheme", "h:1/x", Address{}, ErrInvalidAddress},
		{"another scheme", "https://h:1/x", Address{}, ErrInvalidAddress},
		{"scheme in capitals", "WEIDA://h:1/x", Address{}, ErrInvalidAddress},
		{"no port", "weida://h/x", Address{}, ErrInvalidAddress},
		{"empty port", "weida://h:/x", Address{}, ErrInvalidAddress},
		{"port 0", "weida://h:0/x", Address{}, ErrInvalidAddress},
		{"port too large", "weida://h:65536/x", Address{}, ErrInvalidAddress},
		{"port with a sign", "weida://h:+1/x", Address{}, ErrInvalidAddress},
		{"port with a zero before", "weida://h:01/x", Address{}, ErrInvalidAddress},
		{"port by name", "weida://h:http/x", Address{}, ErrInvalidAddress},
		{"no host", "weida://:1/x", Address{}, ErrInvalidAddress},
		{"IPv6 without brackets", "weida://::1:7443/x", Address{}, ErrInvalidAddress},
		{"IPv4 in brackets", "weida://[10.0.0.1]:1/x", Address{}, ErrInvalidAddress},
		{"open bracket", "weida://[::1:1/x", Address{}, ErrInvalidAddress},
		{"name in brackets", "weida://[host]:1/x", Address{}, ErrInvalidAddress},
		{"space in the host", "weida://a b:1/x", Address{}, ErrInvalidAddress},
		{"host beyond ASCII", "weida://höst:1/x", Address{}, ErrInvalidAddress},
		{"host too long", "weida://" + strings.Repeat("h", 254) + ":1/x", Address{}, ErrInvalidAddress},
		{"two at signs", "weida://sha256:" + digits + "@x@h:1/x", Address{}, ErrInvalidAddress},
		{"user name", "weida://me@h:1/x", Address{}, ErrInvalidFingerprint},
		{"empty pin", "weida://@h:1/x", Address{}, ErrInvalidFingerprint},
		{"pin in capitals", "weida://sha256:" + strings.ToUpper(digits) + "@h:1/x", Address{}, ErrInvalidFingerprint},
		{"pin cut short", "weida://sha256:" + digits[2:] + "@h:1/x", Address{}, ErrInvalidFingerprint},
		{"no path", "weida://h:1", Address{}, ErrInvalidEndpointPath},
		{"path too long", "weida://h:1" + longest + "x", Address{}, ErrInvalidEndpointPath},
		{"newline in the path", "weida://h:1/a\nb", Address{}, ErrInvalidEndpointPath},
		{"path not UTF-8", "weida://h:1/\xff", Address{}, ErrInvalidEndpointPath},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseAddress(tt.in)
			if !errors.Is(err, tt.err) {
				t.Fatalf("got error %v, want %v", err, tt.err)
			}
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if tt.err == nil && got.String() != tt.in {
				t.Errorf("it reads %s when written again", got)
			}
		})
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"weida://h:1/x", "weida://sha256:" + strings.Repeat("00", 32) + "@[::1]:7443/a?b", "weida://:/", "weida+unix://x/y", "weida+unix://%2Fa%40/x", "weida+inproc://b/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddress(s)
		if err != nil {
			return
		}
		remote := a.Host != "" && a.Port != 0 && a.Local == ""
		if (a.Carrier == OverQUIC) != remote || remote == (a.Local != "") || CheckPath(a.Path) != nil {
			t.Errorf("%q was accepted as %+v", s, a)
		}
		if a.Carrier != OverUnix && a.String() != s { // a socket may be percent-encoded in more than one way
			t.Errorf("%q reads %q when written again", s, a)
		}
		if again, err := ParseAddress(a.String()); err != nil || again != a {
			t.Errorf("%q: got %+v, %v when read again, want %+v", s, again, err, a)
		}
	})
}

func TestCheckPath(t *testing.T) {
	tests := []struct {
		name, path string
		ok         bool
	}{
		{"plain", "/jobs", true},
		{"unicode", "/größe", true},
		{"delete is no control byte here", "/\x7f", true},
		{"empty", "", false},
		{"no slash", "jobs", false},
		{"NUL", "/\x00", false},
		{"last control byte", "/\x1f", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := CheckPath(tt.path); tt.ok != (err == nil) || err != nil && !errors.Is(err, ErrInvalidEndpointPath) {
				t.Errorf("got %v, want ok %v", err, tt.ok)
			}
		})
	}
}
