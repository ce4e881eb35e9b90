package e2e

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkacluster"
)

// browser is a headless Chromium, spoken to by the DevTools protocol on pipes: JSON
// that ends in a zero byte.
type browser struct {
	t    *testing.T
	to   *os.File
	gone chan struct{} // closed when the browser has closed its pipe

	mu      sync.Mutex
	id      int
	waiting map[int]chan browserAnswer // of capacity 1
	faults  map[string][]string        // errors that pages have shown, by session
}

type browserAnswer struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// browserMessage is an answer or an event.
type browserMessage struct {
	ID        int
	SessionID string
	Method    string
	Params    json.RawMessage
	browserAnswer
}

// startBrowser starts one until the test ends.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	path := installed(t, "clients/browser/install")
	theirIn, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--remote-debugging-pipe", "--headless", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--user-data-dir=" + t.TempDir()}
	if os.Geteuid() == 0 {
		args = append(args, "--no-sandbox") // it refuses to be root's in one; the pages are our own
	}
	cmd := exec.Command(path, args...)
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4
	cmd.SysProcAttr = kafkacluster.DieWithParent()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirIn.Close()
	_ = theirOut.Close()
	b := &browser{t: t, to: to, gone: make(chan struct{}), waiting: map[int]chan browserAnswer{}, faults: map[string][]string{}}
	go b.readLoop(from)
	t.Cleanup(func() {
		_ = to.Close() // has it end
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		<-b.gone
	})
	return b
}

func (b *browser) readLoop(from *os.File) {
	defer close(b.gone)
	defer from.Close()
	for reader := bufio.NewReader(from); ; {
		text, err := reader.ReadBytes(0)
		if err != nil {
			return
		}
		var m browserMessage
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if answer := b.waiting[m.ID]; m.ID != 0 && answer != nil {
			answer <- m.browserAnswer
			delete(b.waiting, m.ID)
		}
		if fault := faultOf(m); fault != "" {
			b.faults[m.SessionID] = append(b.faults[m.SessionID], fault)
		}
		b.mu.Unlock()
	}
}

// faultOf tells an error that a page shows in its console; empty: it is none.
func faultOf(m browserMessage) string {
	var p struct {
		Type  string
		Args  []struct{ Value, Description any }
		Entry struct{ Level, Text, URL string }

		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if json.Unmarshal(m.Params, &p) != nil {
		return ""
	}
	switch {
	case m.Method == "Runtime.exceptionThrown":
		return p.ExceptionDetails.Text + " " + p.ExceptionDetails.Exception.Description
	case m.Method == "Runtime.consoleAPICalled" && (p.Type == "error" || p.Type == "assert" || p.Type == "warning"):
		return fmt.Sprint(p.Type, " ", p.Args)
	case m.Method == "Log.entryAdded" && (p.Entry.Level == "error" || p.Entry.Level == "warning"):
		return p.Entry.Level + " " + p.Entry.Text + " " + p.Entry.URL
	}
	return ""
}

// call calls a method, in a session if there is one.
func (b *browser) call(session, method string, params, result any) {
	b.t.Helper()
	b.mu.Lock()
	b.id++
	id, answer := b.id, make(chan browserAnswer, 1)
	b.waiting[id] = answer
	request := map[string]any{"id": id, "method": method}
	if session != "" {
		request["sessionId"] = session
	}
	if params != nil {
		request["params"] = params
	}
	text, err := json.Marshal(request)
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		b.t.Fatalf("browser: %s: %v", method, err)
	}
	select {
	case a := <-answer:
		if a.Error != nil {
			b.t.Fatalf("browser: %s: %s", method, a.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(a.Result, result); err != nil {
				b.t.Fatalf("browser: %s: %v", method, err)
			}
		}
	case <-b.gone:
		b.t.Fatalf("browser ended at %s", method)
	case <-time.After(30 * time.Second):
		b.t.Fatalf("browser: no answer to %s", method)
	}
}

// browserPage is a tab.
type browserPage struct {
	*browser
	session string
}

// look is how a page is looked at.
type look struct {
	width, height int
	phone, dark   bool
	withoutScript bool
}

// open opens a page.
func (b *browser) open(url string, l look) *browserPage {
	b.t.Helper()
	var target struct{ TargetID string }
	b.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p := &browserPage{b, attached.SessionID}
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(p.session, domain+".enable", nil, nil)
	}
	scheme, scale := "light", 1
	if l.dark {
		scheme = "dark"
	}
	if l.phone {
		scale = 2
	}
	b.call(p.session, "Emulation.setDeviceMetricsOverride", map[string]any{"width": l.width, "height": l.height, "deviceScaleFactor": scale, "mobile": l.phone}, nil)
	b.call(p.session, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.call(p.session, "Emulation.setScriptExecutionDisabled", map[string]any{"value": l.withoutScript}, nil)
	b.call(p.session, "Page.navigate", map[string]any{"url": url}, nil)
	return p
}

// eval gives the value of an expression.
func (p *browserPage) eval(expression string, value any) {
	p.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	p.call(p.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &answer)
	if answer.ExceptionDetails != nil {
		p.t.Fatalf("browser: %s: %s", expression, answer.ExceptionDetails.Exception.Description)
	}
	if len(answer.Result.Value) == 0 {
		return // undefined
	}
	if err := json.Unmarshal(answer.Result.Value, value); err != nil {
		p.t.Fatalf("browser: %s: %v", expression, err)
	}
}

// text is the text of the first element that a selector finds; empty: there is none.
func (p *browserPage) text(selector string) string {
	p.t.Helper()
	quoted, _ := json.Marshal(selector)
	var text string
	p.eval(fmt.Sprintf("(document.querySelector(%s)?.textContent ?? '').trim()", quoted), &text)
	return text
}

// await waits until an expression is true.
func (p *browserPage) await(what, expression string) {
	p.t.Helper()
	waitFor(p.t, what, 30*time.Second, func() error {
		var is bool
		if p.eval("Boolean("+expression+")", &is); !is {
			return fmt.Errorf("%s is not true", expression)
		}
		return nil
	})
}

// wantNoFaults fails the test for what the page has shown in its console.
func (p *browserPage) wantNoFaults() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fault := range p.faults[p.session] {
		p.t.Errorf("the page's console shows: %s", fault)
	}
}

// wantNoOverflow fails the test if the page is wider than its window, and names what is.
func (p *browserPage) wantNoOverflow() {
	p.t.Helper()
	var wide []string
	p.eval(`document.documentElement.scrollWidth <= innerWidth ? [] : [document.documentElement.scrollWidth + ' of ' + innerWidth,
		...[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 40))]`, &wide)
	if len(wide) > 0 {
		p.t.Errorf("the page can be scrolled sideways: %q", wide)
	}
}

// screenshot keeps the whole page as it looks, below .cache/screenshots.
func (p *browserPage) screenshot(name string) {
	p.t.Helper()
	var size struct {
		CSSContentSize struct{ Width, Height float64 }
	}
	p.call(p.session, "Page.getLayoutMetrics", nil, &size)
	var shot struct{ Data string }
	p.call(p.session, "Page.captureScreenshot", map[string]any{"captureBeyondViewport": true, "clip": map[string]any{
		"x": 0, "y": 0, "width": size.CSSContentSize.Width, "height": size.CSSContentSize.Height, "scale": 1,
	}}, &shot)
	picture, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	dir := cacheDir(p.t, "screenshots")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644); err != nil {
		p.t.Fatal(err)
	}
}
