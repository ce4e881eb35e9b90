package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A hostile name, as one is who can write a rule.
const hostileRule = `x<script>document.querySelector("h1").remove()</script>*`

// TestStatusPage watches a proxy at work in a browser, on a desk and on a phone.
func TestStatusPage(t *testing.T) {
	needsProgram(t)
	besideOthers(t)
	const topic = "status-page"
	p := startProxy(t, "--require", topic, "--observe", hostileRule, "--enforce", strings.Repeat("a-long-name.", 15)+"*")
	createTopic(t, adminAt(t, p.bootstrap), topic, 4)
	stop := keepWriting(t, p.bootstrap, topic, 4)
	url := "http://" + p.admin() + "/"
	b := startBrowser(t)

	for _, l := range []struct {
		name string
		look
	}{
		{"desktop", look{width: 1280, height: 900}},
		{"phone-dark", look{width: 360, height: 740, phone: true, dark: true}},
		{"tablet", look{width: 768, height: 1024, phone: true}},
	} {
		page := b.open(url, l.look)
		page.await(l.name+": the page is live", `document.querySelector('#contact')?.textContent === 'live'`)
		before := page.text("#tile-won .detail")
		page.await(l.name+": values change", fmt.Sprintf(`document.querySelector('#tile-won .detail').textContent !== %q`, before))
		page.await(l.name+": appends have a rate", `parseFloat(document.querySelector('#tile-won .value').textContent) > 0`)
		page.await(l.name+": partitions are shown", `document.querySelectorAll('#partitions tbody tr').length === 4`)
		if l.name == "desktop" { // it takes seconds
			page.await(l.name+": the line has points", `document.querySelector('#tile-won polyline')?.getAttribute('points').split(' ').length > 3`)
		}
		if got := page.text("#state"); got != "Ready" {
			t.Errorf("%s: got state %q, want Ready", l.name, got)
		}
		if got := page.text("#rules tbody tr td"); got != topic && !strings.Contains(page.text("#rules tbody"), hostileRule) {
			t.Errorf("%s: rules are shown as %q", l.name, page.text("#rules tbody"))
		}
		if page.text("h1") != "offsetproxy" {
			t.Errorf("%s: a name has run as a script", l.name)
		}
		var title string
		if page.eval("document.title", &title); title != "Ready – offsetproxy" {
			t.Errorf("%s: got title %q", l.name, title)
		}
		page.wantNoOverflow()
		page.wantNoFaults()
		page.screenshot(l.name)
	}

	plain := b.open(url, look{width: 360, height: 740, phone: true, withoutScript: true})
	plain.await("without scripts, partitions are shown", `document.querySelectorAll('#partitions tbody tr').length === 4`)
	if got := plain.text("#contact noscript"); !strings.Contains(got, "renewed every 5 s") {
		t.Errorf("without scripts: got contact %q", got)
	}
	plain.wantNoOverflow()
	plain.screenshot("phone-without-script")

	page := b.open(url, look{width: 1280, height: 900, dark: true})
	page.await("the page is live", `document.querySelector('#contact')?.textContent === 'live'`)
	stop()
	waitFor(t, "what is shown is what is served", 20*time.Second, page.sameAsServed)
	p.stop(t)
	page.await("it tells that the proxy is gone", `document.querySelector('#contact').textContent.startsWith('lost contact at ')`)
	page.screenshot("lost-contact")
}

// sameAsServed holds the tables that the script makes against those that the server
// makes, but for rates, which it leaves to the script.
func (p *browserPage) sameAsServed() error {
	p.t.Helper()
	const rows = `[...doc.querySelectorAll('main tbody tr')].map((row) => row.closest('section').id + ': ' + [...row.cells].filter((c) => !/\/s|Per second/.test(c.dataset.label))
		.map((c) => [...c.children].map((s) => s.className + ' ' + s.textContent).join(' | ')).join(' ; '))`
	var shown, served []string
	p.eval("((doc) => "+rows+")(document)", &shown)
	p.eval("fetch('/').then((a) => a.text()).then((text) => ((doc) => "+rows+")(new DOMParser().parseFromString(text, 'text/html')))", &served)
	if len(shown) != len(served) {
		return fmt.Errorf("%d rows are shown, %d served", len(shown), len(served))
	}
	for i := range shown {
		if shown[i] != served[i] {
			return fmt.Errorf("row %d is shown as\n%s\nand served as\n%s", i, shown[i], served[i])
		}
	}
	return nil
}

// keepWriting appends to each partition, and tries places that are taken, until the
// function it returns is called.
func keepWriting(t *testing.T, bootstrap, topic string, partitions int32) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for partition := range partitions {
		client := newClient(t, kgo.SeedBrokers(bootstrap), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.AllISRAcks()))
		produce := func(expected int64, value string) error {
			record := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "expected-offset", Value: strconv.AppendInt(nil, expected, 10)}}}
			return client.ProduceSync(ctx, record).FirstErr()
		}
		writers.Go(func() {
			pause := time.NewTicker(time.Duration(4+3*partition) * time.Millisecond)
			defer pause.Stop()
			for next := int64(0); ctx.Err() == nil; next++ {
				if err := produce(next, fmt.Sprint("value ", next)); err != nil && ctx.Err() == nil {
					t.Errorf("append at %d of %d: %v", next, partition, err)
					return
				}
				if next%3 == 0 {
					if err := produce(0, fmt.Sprint("late ", next)); !errors.Is(err, kerr.OffsetOutOfRange) && ctx.Err() == nil {
						t.Errorf("append at 0 of %d: got %v, want a refusal", partition, err)
						return
					}
				}
				select {
				case <-ctx.Done():
				case <-pause.C:
				}
			}
		})
	}
	stop = func() {
		cancel()
		writers.Wait()
	}
	t.Cleanup(stop)
	return stop
}
