package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/agreement"
)

// quiet is for what has findings in place of log lines.
var quiet = slog.New(slog.DiscardHandler)

// maxShown bounds what a proxy may answer, in bytes: 10,000 rules have some 2 MiB.
const maxShown = 16 << 20

// askProxy reads what a proxy shows.
func askProxy(ctx context.Context, client *http.Client, address string) Proxy {
	parsed, err := url.Parse(address)
	if err != nil {
		// What is told of it, or is in the error, may hold a password.
		failed := Failure{Text: "what is given for it is no URL and no host:port"}
		return Proxy{URL: "(no URL)", Failed: failed, Clock: ClockReading{Failed: failed}}
	}
	p := Proxy{URL: parsed.Redacted()}
	p.Clock = ClockReading{Of: "proxy " + p.URL, Grain: time.Second}
	p.Clock.Before = time.Now()
	status, header, text, err := get(ctx, client, address+"/agreement.json")
	p.Clock.After = time.Now()
	switch {
	case err != nil:
		p.Failed = failureOf(err)
	case status != http.StatusOK:
		p.Failed = Failure{Text: fmt.Sprintf("%s/agreement.json has status %d", p.URL, status)}
	default:
		p.Agreement, err = agreement.Parse(text)
		p.Failed = failureOf(err)
		var of struct {
			Since   time.Time `json:"since"`
			Version string    `json:"version"`
		}
		if json.Unmarshal(text, &of) == nil {
			p.Since, p.Version = of.Since, of.Version
		}
	}
	if p.Clock.Said, err = http.ParseTime(header.Get("Date")); err != nil {
		p.Clock.Failed = failureOf(err)
	}
	if p.Failed.Failed() {
		return p
	}
	status, _, text, err = get(ctx, client, address+"/readyz")
	switch {
	case err != nil:
		p.NotReady = failureOf(err).Text
	case status != http.StatusOK:
		p.NotReady = shorten(string(text))
	}
	return p
}

func get(ctx context.Context, client *http.Client, address string) (status int, header http.Header, text []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, nil, err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(io.LimitReader(response.Body, maxShown))
	return response.StatusCode, response.Header, text, err
}
