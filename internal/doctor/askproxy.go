package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
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
		p.Failed = proxyFailure(parsed.Scheme, err)
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
	status, _, text, err = get(ctx, client, address+"/status.json")
	if err == nil && status == http.StatusOK {
		p.Hidden = hiddenBy(text)
	}
	return p
}

// proxyFailure says why there is no answer of HTTP.
func proxyFailure(scheme string, err error) Failure {
	var op *net.OpError
	notReached := errors.As(err, &op) && op.Op == "dial"
	if notReached || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || scheme != "http" {
		return failureOf(err)
	}
	return Failure{Text: "no HTTP there: is this the admin address (metrics.listen), and not the Kafka port? (" + shorten(err.Error()) + ")"}
}

// hiddenBy reads a proxy's status; what is none hides nobody.
func hiddenBy(status []byte) (hidden []string) {
	var shown struct {
		Brokers []struct {
			Node      int32             `json:"node"`
			InCluster bool              `json:"in_cluster"`
			Hidden    map[string]string `json:"hidden"`
		} `json:"brokers"`
	}
	if json.Unmarshal(status, &shown) != nil {
		return nil
	}
	for _, b := range shown.Brokers {
		for _, listener := range slices.Sorted(maps.Keys(b.Hidden)) {
			if b.InCluster {
				hidden = append(hidden, shorten(fmt.Sprintf("broker %d is hidden from clients of listener %s: %s", b.Node, listener, b.Hidden[listener])))
			}
		}
	}
	return hidden
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
