package main

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"sync"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// The page is one file to a browser: nothing else is loaded.
var (
	//go:embed statuspage/page.html
	pageHTML string
	//go:embed statuspage/page.css
	pageStyle string
	//go:embed statuspage/page.js
	pageScript string
)

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// pagePolicy lets a browser run and show the page's own script and style and ask for
// /status.json, and nothing else: names of topics, brokers and rules come from others.
var pagePolicy = fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	sourceHash(pageScript), sourceHash(pageStyle))

// sourceHash names a script or style in a policy (CSP level 3, section 2.3.1).
func sourceHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// statusPage serves the status, as a page and as JSON. Many may watch it: what is
// shown is made once for all who ask within the same quarter of a second.
type statusPage struct {
	source statusSource
	logger *slog.Logger

	mu sync.Mutex
	of *proxy.Status // what is shown; nil: not started, so made each time
	// shown, and that as JSON and as a page, of which each is nil until it is asked for.
	shown      *statusDocument
	json, page []byte
}

// openStatusPage serves the status page of whatever the admin server watches.
func (a *adminServer) openStatusPage(source statusSource, logger *slog.Logger) {
	source.proxy = a.proxy.Load
	p := &statusPage{source: source, logger: logger}
	a.handle("GET /{$}", p.handler("text/html; charset=utf-8", p.pageLocked))
	a.handle("GET /status.json", p.handler("application/json", p.jsonLocked))
}

// handler answers with what take gives, under mu.
func (p *statusPage) handler(contentType string, take func() ([]byte, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		p.renewLocked()
		body, err := take()
		p.mu.Unlock()
		h := w.Header()
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if err != nil {
			p.logger.Error("status cannot be shown", "err", err)
			http.Error(w, "the status cannot be shown; see the log", http.StatusInternalServerError)
			return
		}
		h.Set("Content-Type", contentType)
		_, _ = w.Write(body) // fails only when the client has gone
	})
}

// renewLocked has the newest status be shown.
func (p *statusPage) renewLocked() {
	var status *proxy.Status
	if running := p.source.proxy(); running != nil {
		status = running.Status()
	}
	if status == nil || status != p.of {
		p.of, p.shown, p.json, p.page = status, p.source.document(status), nil, nil
	}
}

func (p *statusPage) jsonLocked() (_ []byte, err error) {
	if p.json == nil {
		if p.json, err = json.Marshal(p.shown); err != nil {
			return nil, fmt.Errorf("status as JSON: %w", err)
		}
	}
	return p.json, nil
}

func (p *statusPage) pageLocked() ([]byte, error) {
	if p.page == nil {
		view := p.shown.view()
		view.Script, view.Style = template.JS(pageScript), template.CSS(pageStyle)
		var page bytes.Buffer
		if err := pageTemplate.Execute(&page, view); err != nil {
			return nil, fmt.Errorf("status page: %w", err)
		}
		p.page = page.Bytes()
	}
	return p.page, nil
}
