package main

import (
	"encoding/json"
	"errors"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/proxy"
)

// newTestPage serves the status of a proxy that does not run.
func newTestPage(t *testing.T, p *proxy.Proxy) *adminServer {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	admin, err := startAdmin("127.0.0.1:0", false, prometheus.NewRegistry(), logger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.close(); err != nil {
			t.Error(err)
		}
	})
	admin.openStatusPage(statusSource{}, logger)
	if p != nil {
		admin.watch(p)
	}
	return admin
}

func stillProxy(t *testing.T) *proxy.Proxy {
	t.Helper()
	p, err := proxy.New(proxy.Config{
		Bootstrap: []string{"broker:9092"}, Listen: "127.0.0.1:0", Rules: []proxy.Rule{{Topics: "<b>*", Mode: proxy.ModeRequire}},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (a *adminServer) answer(method, path string) *http.Response {
	w := httptest.NewRecorder()
	a.mux.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Result()
}

func bodyOf(t *testing.T, r *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestStatusPageAnswers(t *testing.T) {
	admin := newTestPage(t, stillProxy(t))
	for _, c := range []struct {
		method, path string
		code         int
		contentType  string
	}{
		{"GET", "/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/", 200, "text/html; charset=utf-8"},
		{"GET", "/status.json", 200, "application/json"},
		{"HEAD", "/status.json", 200, "application/json"},
		{"POST", "/", 405, ""},
		{"DELETE", "/status.json", 405, ""},
		{"GET", "/index.html", 404, ""},
		{"GET", "/status.json/", 404, ""},
		{"POST", "/other", 404, ""},
	} {
		r := admin.answer(c.method, c.path)
		if r.StatusCode != c.code || c.contentType != "" && r.Header.Get("Content-Type") != c.contentType {
			t.Errorf("%s %s: got %d, %s; want %d, %s", c.method, c.path, r.StatusCode, r.Header.Get("Content-Type"), c.code, c.contentType)
		}
		if c.code != 200 {
			continue
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "Content-Security-Policy": pagePolicy,
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s %s: got %s %q, want %q", c.method, c.path, name, got, want)
			}
		}
	}
	var d statusDocument
	if err := json.Unmarshal([]byte(bodyOf(t, admin.answer("GET", "/status.json"))), &d); err != nil {
		t.Fatal(err)
	}
	if d.State != "not_ready" || d.Reason != "not listening yet" || len(d.Rules) != 1 || d.Rules[0].Topics != "<b>*" || d.Version == "" {
		t.Errorf("got %+v", d)
	}
}

// TestStatusPageBeforeTheProxy: there is something to see from the first moment, of the
// same form.
func TestStatusPageBeforeTheProxy(t *testing.T) {
	admin := newTestPage(t, nil)
	body := bodyOf(t, admin.answer("GET", "/status.json"))
	if strings.Contains(body, "null") || !strings.Contains(body, `"reason":"not started yet"`) {
		t.Errorf("got %s", body)
	}
	if page := bodyOf(t, admin.answer("GET", "/")); !strings.Contains(page, "Not ready, so clients should not be sent here: not started yet.") {
		t.Errorf("got %s", page)
	}
}

var (
	pageScripts = regexp.MustCompile(`(?s)<script>(.*?)</script>`)
	pageStyles  = regexp.MustCompile(`(?s)<style>(.*?)</style>`)
	eventCode   = regexp.MustCompile(`(?i)<[^>]*\s(on[a-z]+|style)\s*=`)
	outside     = regexp.MustCompile(`(?i)(src|href|action)\s*=\s*"(https?:|//)|@import|url\(`)
)

// TestStatusPageIsWhole: all that a browser runs and shows is in the page, as its policy
// says.
func TestStatusPageIsWhole(t *testing.T) {
	page := bodyOf(t, newTestPage(t, stillProxy(t)).answer("GET", "/"))
	scripts, styles := pageScripts.FindAllStringSubmatch(page, -1), pageStyles.FindAllStringSubmatch(page, -1)
	if len(scripts) != 1 || len(styles) != 1 {
		t.Fatalf("got %d scripts and %d styles, want one each", len(scripts), len(styles))
	}
	for _, text := range []string{scripts[0][1], styles[0][1]} {
		if !strings.Contains(pagePolicy, "'"+sourceHash(text)+"'") {
			t.Errorf("the policy %s does not allow what begins with %.60q", pagePolicy, text)
		}
	}
	markup := pageStyles.ReplaceAllString(pageScripts.ReplaceAllString(page, ""), "")
	if found := eventCode.FindString(markup); found != "" {
		t.Errorf("code or style within the markup: %q", found)
	}
	if found := outside.FindString(page); found != "" {
		t.Errorf("something from outside: %q", found)
	}
}

const hostile = `"'><script>alert(1)</script><img src=x onerror=alert(1)>` + "\u202e"

// fillHostile sets all texts below v, and makes one of each list and map.
func fillHostile(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillHostile(v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			fillHostile(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillHostile(v.Index(0))
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fillHostile(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(hostile).Convert(v.Type().Key()), value)
	case reflect.String:
		v.SetString(hostile)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	}
}

// TestStatusPageEscapesWhatOthersName: topics, rules and brokers are named by others.
func TestStatusPageEscapesWhatOthersName(t *testing.T) {
	var d statusDocument
	fillHostile(reflect.ValueOf(&d).Elem())
	var page strings.Builder
	view := d.view()
	view.Script, view.Style = template.JS(pageScript), template.CSS(pageStyle)
	if err := pageTemplate.Execute(&page, view); err != nil {
		t.Fatal(err)
	}
	markup := pageScripts.ReplaceAllStringFunc(page.String(), func(found string) string {
		if found == "<script>"+pageScript+"</script>" {
			return ""
		}
		return found
	})
	for _, code := range []string{"<script>", "<img", `"'>`} {
		if strings.Contains(markup, code) {
			t.Errorf("the page holds %q", code)
		}
	}
	// What is shown of it is there, as text.
	if got := strings.Count(markup, template.HTMLEscapeString("<script>alert(1)</script>")); got < 15 {
		t.Errorf("got %d texts shown, want more", got)
	}
	text, err := json.Marshal(&d)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "<") {
		t.Error("the JSON holds markup")
	}
}

// TestStatusIsMadeOnceForManyWatchers: those who ask at the same time get the same.
func TestStatusIsMadeOnceForManyWatchers(t *testing.T) {
	p := stillProxy(t)
	admin := newTestPage(t, p)
	var mu sync.Mutex
	seen := map[string]bool{}
	begun := time.Now()
	var watchers sync.WaitGroup
	for range 20 {
		watchers.Go(func() {
			for range 20 {
				body := bodyOf(t, admin.answer("GET", "/status.json"))
				bodyOf(t, admin.answer("GET", "/"))
				mu.Lock()
				seen[body] = true
				mu.Unlock()
			}
		})
	}
	watchers.Wait()
	if most := int(time.Since(begun)/(250*time.Millisecond)) + 1; len(seen) > most {
		t.Errorf("got %d statuses, want at most %d", len(seen), most)
	}
}

// TestAttentionComesInOrder: each thing that is wrong is named, the worst first.
func TestAttentionComesInOrder(t *testing.T) {
	var certs certificates
	certs.reloads.note(true)
	source := statusSource{certs: &certs}
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	d := &statusDocument{Unsafe: true, Status: proxy.Status{
		At: at, State: "not_ready", Reason: "no broker has answered yet", TopicsUnserved: 2, TopicsWeak: 1, RulesSettling: true,
		Connections: proxy.ConnectionStatus{Open: 9, Max: 10}, Memory: proxy.MemoryStatus{RequestBytes: 95, MaxBytes: 100},
		Listeners: []proxy.ListenerStatus{{Name: "a"}},
		Brokers: []proxy.BrokerStatus{
			{Node: 1, Upstream: "b:1", InCluster: true, State: "failing", Failure: "refused", Addresses: map[string]string{"a": "x:1"}},
			{Node: 2, InCluster: true, State: "reached", MarksBy: "nothing", Problem: "no right", Addresses: map[string]string{"a": "x:2"}},
			{Node: 3, InCluster: true, State: "reached", Hidden: map[string]string{"a": "port 9 is in use"}},
		},
		Partitions: []proxy.PartitionStatus{{State: "closed"}},
		Appends:    proxy.AppendStatus{Unknown: 3, Outcomes: map[string]int64{"violation": 4}, AlarmCounts: map[string]int64{"bypassed": 5, "misplaced": 1}},
	}, Configuration: &configurationStatus{File: "f.yaml", RefusedNow: true}, Certificates: []certificateStatus{{"upstream", at.Add(-time.Hour)}, {"listener a", at.Add(26 * time.Hour)}}}
	var got []string
	for _, a := range source.attention(d) {
		got = append(got, string(a.Severity)+": "+a.What)
	}
	want := []string{
		"error: The fence is off (--unsafe)", "error: Batches were appended at another offset than promised: 4", "error: A condition of the fence did not hold: 6 alarms",
		"error: Not ready, so clients should not be sent here: no broker has answered yet.", "error: Topics under a rule cannot be fenced, so that Produce to them is refused: 2.",
		"error: Broker 1 at b:1 cannot be reached: refused.", "error: Broker 3 is hidden from clients of listener a: port 9 is in use.", "error: f.yaml was refused", "error: TLS files that changed were refused",
		"error: The certificate of upstream has expired", "error: Partitions take in nothing new: 1",
		"warning: Broker 2 cannot be probed", "warning: The certificate of listener a expires in 26 h 0 min",
		"warning: Nobody has told what became of 3", "warning: Topics under a rule can lose acknowledged records: 1", "warning: Nearly all connections are taken: 9",
		"warning: The memory for frames", "note: The rules were changed",
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := (&statusSource{}).attention(&statusDocument{Status: proxy.Status{State: "ready", Connections: proxy.ConnectionStatus{Max: 10}}}); len(got) != 0 {
		t.Errorf("nothing is wrong, and it names %v", got)
	}
}

// TestRefusedConfigurationIsShownWithoutItsText: a file may hold what others must not
// see.
func TestRefusedConfigurationIsShownWithoutItsText(t *testing.T) {
	got := refusedBy(&config.Error{Problems: []config.Problem{
		{Path: "upstream.sasl", Line: 3, Message: `"secret" is not a setting`, Excerpt: "> 3 | secret"}, {Message: "secret"}, {Path: "rules[0].mode", Message: "secret"},
	}})
	if want := []string{"line 3 upstream.sasl", "rules[0].mode"}; !slices.Equal(got.Places, want) {
		t.Errorf("got %q, want %q", got.Places, want)
	}
	if got := refusedBy(errors.New("secret")); len(got.Places) != 0 || got.At.IsZero() {
		t.Errorf("got %+v", got)
	}
}

func TestTimesAndSizesInWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 59 * time.Second: "59 s", 61 * time.Second: "1 min 1 s", 47*time.Hour + 30*time.Minute: "47 h 30 min", 49 * time.Hour: "2 d 1 h",
	} {
		if got := inWords(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 200 << 20: "200 MiB", 1 << 30: "1.0 GiB", 5 << 50: "5120 TiB"} {
		if got := bytesInWords(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}

// TestDevShowsItsStatus is what someone new sees.
func TestDevShowsItsStatus(t *testing.T) {
	b := start(t, false, "dev", "--listen", "127.0.0.1:0")
	line := b.await(t, has("status "))
	url, _, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "status")), ",")
	if code, page := get(t, url); code != http.StatusOK || !strings.Contains(page, `data-state="ready"`) {
		t.Errorf("got %d, %s", code, page)
	}
	b.stop()
	if got := <-b.code; got != exitOK {
		t.Errorf("got exit %d", got)
	}
}
