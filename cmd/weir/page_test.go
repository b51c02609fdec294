package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	weir "github.com/weir-agent/weir/clients/go"
)

var shoot = flag.Bool("shoot", false, "write the screenshots of the live page into docs/img")

// browser starts a headless Chromium; without one the test is left out, unless CI says that it must be there.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("missing: chromium, with which the live page is tested")
		}
		t.Skip("left out, for want of chromium (Debian: apt-get install chromium): that the live page works in a browser")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()))
	alloc, stopAlloc := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), opts...)
	ctx, stop := chromedp.NewContext(alloc)
	t.Cleanup(func() {
		stop()
		stopAlloc()
	})
	return ctx
}

// wayward is an endpoint that can be sent away, and that refuses records with a certain text.
type wayward struct {
	*httptest.Server
	down atomic.Bool
}

func newWayward(t *testing.T) *wayward {
	e := &wayward{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 64)
		n, _ := r.Body.Read(body)
		switch {
		case e.down.Load():
			w.Header().Set("Retry-After", "1")
			http.Error(w, "down for maintenance", http.StatusServiceUnavailable)
		case strings.HasPrefix(string(body[:n]), "bad "):
			http.Error(w, `field "amount" is no number`, http.StatusUnprocessableEntity)
		}
	}))
	t.Cleanup(e.Close)
	return e
}

// load pushes until the returned function is called.
func load(t *testing.T, dir string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p := weir.NewProducer(weir.ProducerOptions{Path: filepath.Join(dir, "weir.sock"), BatchRecords: 20, Linger: time.Millisecond})
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			_ = p.Send(ctx, fmt.Appendf(nil, `{"order":%d,"item":"a thing"}`, i), func(weir.Outcome) {})
			if i%4 == 0 {
				<-tick.C
			}
		}
		_ = p.Close(context.WithoutCancel(ctx))
	}()
	return func() {
		cancel()
		<-done
	}
}

// view is the page in the browser.
type view struct {
	t   *testing.T
	ctx context.Context
	log *lockedBuffer // the daemon's
	// images is the folder of the screenshots.
	images string
}

func (v view) do(steps ...chromedp.Action[chromedp.Void]) {
	v.t.Helper()
	if err := chromedp.Do(v.ctx, steps...); err != nil {
		v.t.Fatalf("%v\n%s", err, v.log)
	}
}

// eval runs a script of the page.
func eval[T any](v view, script string) T {
	v.t.Helper()
	got, err := chromedp.Run(v.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		v.t.Fatalf("%s: %v\n%s", script, err, v.log)
	}
	return got
}

// until waits until a script of the page says true.
func (v view) until(script string) {
	v.t.Helper()
	if _, err := chromedp.Run(v.ctx, chromedp.Poll[bool](script, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(time.Minute))); err != nil {
		v.t.Fatalf("%s: %v; the page says %q\n%s", script, err, v.text("notes"), v.log)
	}
}

// looks waits until the page has asked n more times, so that it has drawn what is now.
func (v view) looks(n int) {
	v.t.Helper()
	v.until(fmt.Sprintf("Number(document.body.dataset.looks || 0) >= %d", eval[int](v, "Number(document.body.dataset.looks || 0)")+n))
}

func (v view) text(id string) string {
	v.t.Helper()
	return eval[string](v, `document.getElementById("`+id+`").textContent`)
}

func (v view) scheme(name string) {
	v.t.Helper()
	_, err := chromedp.Call(v.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
	if err != nil {
		v.t.Fatal(err)
	}
}

// picture takes a screenshot where the flag asks for it.
func (v view) picture(name string) {
	v.t.Helper()
	if !*shoot {
		return
	}
	png, err := chromedp.Run(v.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(v.images, name+".png"), png, 0o644)
	}
	if err != nil {
		v.t.Fatal(err)
	}
}

// TestLivePage looks at the page with load, during an outage, after the recovery with dead letters, on a phone in the dark, and after the daemon is gone.
func TestLivePage(t *testing.T) {
	images, err := filepath.Abs(filepath.Join("..", "..", "docs", "img"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	t.Setenv("WEIR_WAB_SEGMENT_BYTES", "512KiB")
	end, dir := newWayward(t), "weir-data"
	p, addr := startOpen(t, dir, "--sink", "http", "--sink-url", end.URL+"/orders?token=s3cret")
	v := view{t, browser(t), p.log, images}
	stop := load(t, dir)
	defer stop()
	seconds := 3
	if *shoot {
		seconds = 25 // so that the charts have something to show
	}

	v.do(chromedp.EmulateViewport(1200, 900), chromedp.Navigate("http://"+addr+"/"))
	v.scheme("light")
	v.looks(seconds)
	v.picture("page-load")
	if n, err := strconv.Atoi(strings.ReplaceAll(v.text("accepted"), ",", "")); err != nil || n < 1 || v.text("state") != "accepting" {
		t.Errorf("with load: state %q, accepted %q a second", v.text("state"), v.text("accepted"))
	}
	if sink := v.text("sink"); !strings.Contains(v.text("dead-more"), "none") || strings.Contains(sink, "s3cret") || !strings.Contains(sink, "/orders") {
		t.Errorf("with load: dead letters %q, sink %q", v.text("dead-more"), sink)
	}
	if n := eval[int](v, `document.querySelectorAll("#map li").length`); n == 0 {
		t.Error("no segment in the map")
	}
	if n := eval[int](v, `[...document.querySelectorAll("section, svg[role=img], [role=region], ul, button")].filter(e => !(e.getAttribute("aria-label") || e.textContent.trim() || document.getElementById(e.getAttribute("aria-labelledby")))).length`); n != 0 {
		t.Errorf("%d parts have no name for a screen reader", n)
	}

	end.down.Store(true)
	v.until(`document.getElementById("notes").textContent.includes("503")`)
	v.looks(seconds)
	v.picture("page-outage")
	if notes := v.text("notes"); v.text("state") != "accepting, with warnings" || !strings.Contains(notes, "Nothing is lost") {
		t.Errorf("outage: state %q, notes %q", v.text("state"), notes)
	}

	end.down.Store(false)
	for i := range 3 {
		pushText(t, dir, fmt.Sprintf("bad order %d", i))
	}
	v.until(`document.querySelectorAll("#dead tr").length === 4 && document.getElementById("delivered").textContent !== "0"`)
	v.looks(seconds)
	v.picture("page-recovered")
	if dead := v.text("dead"); !strings.Contains(dead, `field "amount" is no number`) || !strings.Contains(dead, "422") {
		t.Errorf("recovery: dead letters %q", dead)
	}

	v.scheme("dark")
	v.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	v.looks(2)
	v.picture("page-phone-dark")
	if width := eval[int](v, "document.documentElement.scrollWidth"); width != 390 {
		t.Errorf("on a phone the page is %d wide, want 390", width)
	}

	v.do(chromedp.Focus("#hold"), chromedp.KeyEvent(" "))
	if pressed := eval[string](v, `document.getElementById("hold").getAttribute("aria-pressed")`); pressed != "true" {
		t.Errorf("the button does not answer to the keyboard: pressed is %q", pressed)
	}
	v.do(chromedp.KeyEvent(" "))
	stop()
	p.kill(t)
	v.until(`document.getElementById("state").textContent === "no answer"`)
	if notes := v.text("notes"); !strings.Contains(notes, "What is shown is old") {
		t.Errorf("after the end of the daemon: %q", notes)
	}
}
