package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-agent/weir/conformance"
)

// roleVar makes this test binary play the command.
const roleVar = "LINES_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVar) != "" {
		if err := serve(os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// TestConformance lets the runner drive the client, which answers nothing wrongly and
// skips only what a client never does.
func TestConformance(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(roleVar, "1")
	var out, errs bytes.Buffer
	if code := conformance.Main(t.Context(), []string{"run", "--", exe}, nil, &out, &errs); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out.String(), errs.String())
	}
	if got := strings.TrimSpace(out.String()); !strings.HasPrefix(got, "121 passed, 0 failed, ") {
		t.Errorf("got %s; of the vectors, 121 checks are for a client", got)
	}
}
