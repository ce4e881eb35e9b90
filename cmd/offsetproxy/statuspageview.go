package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// The page as it is served shows a document once, without rates. page.js makes the
// same tables of each document that comes after it.

// pageView is what the template of the page shows.
type pageView struct {
	*statusDocument
	// StateWord is the state, and Uptime for how long, in words.
	StateWord, Uptime string
	Tiles             []pageTile
	Tables            []pageTable
	// Words are what page.js needs to write the same, and Script and Style the page's
	// own.
	Words, Script, Style any
}

// pageTile is a number that matters.
type pageTile struct{ ID, Label, Value, Detail string }

// pageTable is a section of the page.
type pageTable struct {
	ID, Title string
	// About says what it is; Empty, what it means that there are no rows.
	About, Empty string
	Columns      []pageColumn
	Rows         [][]pageCell
	// Note says what is left out; empty: nothing.
	Note string
}

// pageColumn is the head of a column; the cells of a Number are aligned so.
type pageColumn struct {
	Title  string
	Number bool
}

// pageCell is a text, perhaps with a tone (good, warn, bad, quiet) and a line below.
type pageCell struct{ Text, Tone, Below string }

func cell(text string) pageCell { return pageCell{Text: text} }

func number[N int | int64 | uint64](n N) pageCell { return cell(thousands(int64(n))) }

// noRate stands where the page shows a rate once it has two documents.
var noRate = cell("–")

// bytesInWords writes a size.
func bytesInWords(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, unit := float64(n), 0
	for f >= 1024 && unit < len(units)-1 {
		f, unit = f/1024, unit+1
	}
	if unit == 0 || f >= 100 {
		return fmt.Sprintf("%.0f %s", f, units[unit])
	}
	return fmt.Sprintf("%.1f %s", f, units[unit])
}

// inWords writes a time that has passed or is left.
func inWords(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case s < 48*3600:
		return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%d d %d h", s/86400, s%86400/3600)
}

// clock writes a time in UTC.
func clock(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05") + "Z" }

// stateWords are the states of a proxy for people.
var stateWords = map[string]string{"ready": "Ready", "not_ready": "Not ready", "draining": "Draining"}

// view makes the page of a document.
func (d *statusDocument) view() pageView {
	return pageView{
		statusDocument: d, StateWord: stateWords[d.State], Uptime: inWords(time.Duration(d.UptimeSeconds) * time.Second),
		Tiles: d.tiles(), Words: pageWords(),
		Tables: []pageTable{
			d.partitionTable(), d.brokerTable(), d.outcomeTable(), d.eventTable(), d.ruleTable(), d.topicTable(), d.limitTable(), d.listenerTable(), d.processTable(),
		},
	}
}

// pageWords are for page.js.
func pageWords() map[string]any {
	var outcomes [][4]any
	for _, o := range outcomeWords {
		outcomes = append(outcomes, [4]any{o.name, o.meaning, o.tone, o.always})
	}
	return map[string]any{
		"states": stateWords, "modes": modeMeanings, "turns": turnWords,
		"partition_tones": partitionTones, "broker_tones": brokerTones, "outcomes": outcomes,
	}
}

func (d *statusDocument) tiles() []pageTile {
	a := &d.Appends
	won := a.Outcomes["won"] + a.Outcomes["replayed"]
	perAppend := "–"
	if won > 0 {
		perAppend = fmt.Sprintf("%.2f", float64(a.Attempts)/float64(won))
	}
	return []pageTile{
		{"won", "Appended", thousands(won), "in all"},
		{"refused", "Conditions refused", thousands(a.Outcomes["taken"] + a.Outcomes["not_reached"] + a.Outcomes["predecessor_refused"]), "in all"},
		{"races", "Attempts per append", perAppend, thousands(a.LostRaces) + " races lost"},
		{"unknown", "Unknown in doubt", thousands(a.Unknown), thousands(a.Outcomes["unknown"]) + " told so in all"},
		{"connections", "Clients", thousands(d.Connections.Open), "of " + thousands(int64(d.Connections.Max)) + " at most"},
		{"traffic", "Requests", thousands(d.Traffic.Requests), bytesInWords(d.Traffic.BytesIn) + " in, " + bytesInWords(d.Traffic.BytesOut) + " out"},
	}
}

// Tones of states.
var (
	partitionTones = map[string]string{"open": "good", "idle": "quiet", "held": "warn", "busy": "quiet", "unknown": "bad", "closed": "bad"}
	turnWords      = map[string]string{"free": "no rival", "ours": "ours", "pausing": "left to others", "others": "another proxy's"}
	brokerTones    = map[string]string{"reached": "good", "failing": "bad", "untried": "quiet"}
)

// byTroubleAndName orders partitions so that they keep their places while one looks.
func byTroubleAndName(a, b proxy.PartitionStatus) int {
	trouble := func(p proxy.PartitionStatus) int {
		if partitionTones[p.State] == "bad" {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(trouble(a), trouble(b)), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

func (d *statusDocument) partitionTable() pageTable {
	t := pageTable{
		ID: "partitions", Title: "Partitions", About: "Those under a rule: of many, the most active.",
		Empty: "No batch for a topic under a rule has come yet.",
		Columns: []pageColumn{{"Partition", false}, {"State", false}, {"Next offset", true}, {"Leader", true}, {"Appended /s", true}, {"Refused /s", true},
			{"Tries per append", true}, {"Waiting", true}, {"Upstream", true}, {"Unknown", true}, {"Turn", false}},
	}
	for _, p := range slices.SortedFunc(slices.Values(d.Partitions), byTroubleAndName) {
		name := fmt.Sprintf("%s/%d", p.Topic, p.Partition)
		if p.State == "busy" {
			row := slices.Repeat([]pageCell{noRate}, len(t.Columns))
			row[0], row[1] = cell(name), pageCell{p.State, partitionTones[p.State], ""}
			t.Rows = append(t.Rows, row)
			continue
		}
		next, leader, tries := number(p.NextOffset), cell("–"), noRate
		if !p.NextKnown {
			next.Text = "≥ " + next.Text
		}
		if p.Leader >= 0 {
			leader = cell(fmt.Sprint(p.Leader))
		}
		if p.Appended > 0 {
			tries = cell(fmt.Sprintf("%.2f", float64(p.Attempts)/float64(p.Appended)))
		}
		t.Rows = append(t.Rows, []pageCell{
			{name, "", p.Why}, {p.State, partitionTones[p.State], ""}, next, leader, noRate, noRate, tries,
			number(p.Waiting), number(p.Upstream), number(p.Unknown), cell(turnWords[p.Turn]),
		})
	}
	if d.PartitionsLeftOut > 0 {
		t.Note = thousands(int64(d.PartitionsLeftOut)) + " more are not shown."
	}
	return t
}

func (d *statusDocument) eventTable() pageTable {
	t := pageTable{
		ID: "events", Title: "Violations and alarms", About: "The last of them. Any needs a person.",
		Empty: "None since the start: every success was at its promised offset, as far as this proxy can see.", Columns: []pageColumn{{"When", false}, {"Where", false}, {"What", false}},
	}
	for _, v := range d.Violations {
		t.Rows = append(t.Rows, []pageCell{cell(clock(v.At)), cell(fmt.Sprintf("%s/%d", v.Topic, v.Partition)), {"violation", "bad", v.What}})
	}
	for _, v := range d.Alarms {
		t.Rows = append(t.Rows, []pageCell{cell(clock(v.At)), cell(fmt.Sprintf("%s/%d", v.Topic, v.Partition)), {"alarm", "bad", v.What}})
	}
	return t
}

// outcomeWords say what outcomes mean, in the order in which they are shown.
var outcomeWords = []struct {
	name, meaning, tone string
	always              bool // shown though there are none
}{
	{"won", "appended at the promised offset", "", true},
	{"replayed", "sent again, and was there already", "", false},
	{"taken", "refused: another record has the offset", "", true},
	{"not_reached", "refused: the log ends before the offset", "", true},
	{"predecessor_refused", "refused: what it was sent behind was refused", "", false},
	{"out_of_sequence", "refused: out of the client's own order", "", false},
	{"refused", "refused before the fence: malformed, not allowed, not served", "", false},
	{"retry", "given back to be sent again", "", false},
	{"broker_error", "refused by the broker for its own reasons", "", false},
	{"failed", "the proxy may not read what it needs", "warn", false},
	{"unknown", "nobody knows what became of it, and the client was told so", "warn", true},
	{"violation", "appended at another offset than promised", "bad", true},
}

func (d *statusDocument) outcomeTable() pageTable {
	t := pageTable{
		ID: "outcomes", Title: "Outcomes", About: "Batches under a rule since the start, by what became of them.",
		Columns: []pageColumn{{"Outcome", false}, {"In all", true}, {"Per second", true}},
	}
	for _, o := range outcomeWords {
		n := d.Appends.Outcomes[o.name]
		if n == 0 && !o.always {
			continue
		}
		tone := o.tone
		if n == 0 {
			tone = "faint"
		}
		t.Rows = append(t.Rows, []pageCell{{o.name, tone, o.meaning}, number(n), noRate})
	}
	return t
}

func (d *statusDocument) brokerTable() pageTable {
	t := pageTable{
		ID: "brokers", Title: "Brokers", About: "Where clients reach each, and where the proxy does.", Empty: "No broker is known yet.",
		Columns: []pageColumn{{"Node", false}, {"State", false}, {"Upstream", false}, {"Clients are told", false}, {"Marks duplicates by", false}},
	}
	for _, b := range d.Brokers {
		state, tone, below := b.State, brokerTones[b.State], b.Failure
		if !b.InCluster {
			state, tone = "left the cluster", "quiet"
		}
		var told []string
		for _, name := range slices.Sorted(maps.Keys(b.Addresses)) {
			told = append(told, b.Addresses[name])
		}
		toldCell := cell(strings.Join(told, ", "))
		if len(b.Hidden) > 0 {
			var why []string
			for _, name := range slices.Sorted(maps.Keys(b.Hidden)) {
				why = append(why, "hidden at "+name+": "+b.Hidden[name])
			}
			toldCell.Tone, toldCell.Below = "bad", strings.Join(why, "; ")
		}
		t.Rows = append(t.Rows, []pageCell{cell(fmt.Sprint(b.Node)), {state, tone, below}, cell(b.Upstream), toldCell, {b.MarksBy, "", b.Problem}})
	}
	if d.BrokersLeftOut > 0 {
		t.Note = thousands(int64(d.BrokersLeftOut)) + " more are not shown."
	}
	return t
}

func (d *statusDocument) listenerTable() pageTable {
	t := pageTable{
		ID: "listeners", Title: "Listeners", About: "Where clients come in.",
		Columns: []pageColumn{{"Listener", false}, {"Address", false}, {"Security", false}, {"Clients", true}},
	}
	for _, l := range d.Listeners {
		security := "plain"
		if l.TLS {
			security = "TLS"
		}
		if l.Login {
			security += ", own users"
		}
		names := ""
		if l.ServerNames != "" {
			names = "brokers by name, under " + l.ServerNames
		}
		t.Rows = append(t.Rows, []pageCell{cell(l.Name), {l.Address, "", names}, cell(security), number(l.Connections)})
	}
	return t
}

// modeMeanings say what modes do.
var modeMeanings = map[string]string{
	"off": "forwarded untouched", "observe": "forwarded, and counted what the fence would say", "enforce": "all appends are fenced",
	"require": "conditional appends are fenced, all others refused",
}

func (d *statusDocument) ruleTable() pageTable {
	t := pageTable{
		ID: "rules", Title: "Rules", About: "The first that matches a topic counts.",
		Columns: []pageColumn{{"Topics", false}, {"Mode", false}},
	}
	for _, r := range d.Rules {
		meaning := []string{modeMeanings[r.Mode]}
		for _, name := range slices.Sorted(maps.Keys(r.Options)) {
			meaning = append(meaning, name+" "+r.Options[name])
		}
		pattern := cell(r.Topics)
		if r.TopicsRegexp != "" {
			pattern = pageCell{r.TopicsRegexp, "", "regular expression"}
		}
		t.Rows = append(t.Rows, []pageCell{pattern, {r.Mode, "", strings.Join(meaning, "; ")}})
	}
	t.Rows = append(t.Rows, []pageCell{{"every other topic", "faint", ""}, {d.DefaultMode, "", modeMeanings[d.DefaultMode]}})
	if d.RulesLeftOut > 0 {
		t.Note = thousands(int64(d.RulesLeftOut)) + " more are not shown."
	}
	return t
}

func (d *statusDocument) topicTable() pageTable {
	t := pageTable{
		ID: "topics", Title: "Topics", About: "Topics under a rule with which something is wrong.", Empty: "Nothing is known to be wrong with a topic under a rule.",
		Columns: []pageColumn{{"Topic", false}, {"Problem", false}},
	}
	for _, p := range d.Topics {
		if p.Refusal != "" {
			kind := pageCell{"not served", "bad", p.Refusal}
			if p.Observed {
				kind = pageCell{"could not be served", "warn", p.Refusal}
			}
			t.Rows = append(t.Rows, []pageCell{cell(p.Topic), kind})
		}
		if p.Weak != "" {
			t.Rows = append(t.Rows, []pageCell{cell(p.Topic), {"can lose records", "warn", p.Weak}})
		}
	}
	return t
}

func (d *statusDocument) limitTable() pageTable {
	t := pageTable{
		ID: "limits", Title: "Limits and errors", About: "How often a limit made a connection wait or end, and what went wrong.", Empty: "No limit was hit, and nothing went wrong.",
		Columns: []pageColumn{{"What", false}, {"In all", true}, {"Per second", true}},
	}
	add := func(kind string, counts map[string]int64) {
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			t.Rows = append(t.Rows, []pageCell{{name, "", kind}, number(counts[name]), noRate})
		}
	}
	add("limit that was hit", d.LimitsHit)
	add("reason to give batches back", d.Appends.Retries)
	add("reason to refuse batches before the fence", d.Appends.Refusals)
	add("what a rule that only observes would have said", d.Appends.Observed)
	add("reason to end a client's connection", d.Traffic.Malformed)
	if n := d.Traffic.DialErrors; n > 0 {
		add("connections to brokers that could not be opened", map[string]int64{"dial_errors": n})
	}
	return t
}

func (d *statusDocument) processTable() pageTable {
	t := pageTable{ID: "process", Title: "Process", Columns: []pageColumn{{"What", false}, {"", false}}}
	add := func(name, value, below string) {
		t.Rows = append(t.Rows, []pageCell{cell(name), {value, "", below}})
	}
	used := d.Memory.RequestBytes + d.Memory.AnswerBytes
	add("Memory for frames", bytesInWords(used), "of "+bytesInWords(d.Memory.MaxBytes))
	if a := d.Agreement; a != nil {
		add("Agreement", a.Hash, "the same in all proxies of the cluster; since "+clock(a.Since))
	}
	if c := d.Configuration; c != nil {
		add("Configuration", c.File, fmt.Sprintf("rules of %s; read again %d times, %d refused", clock(c.RulesSince), c.Taken+c.Refused, c.Refused))
		if r := c.LastRefused; r != nil {
			add("Last refused", clock(r.At), strings.Join(r.Places, ", "))
		}
	}
	for _, c := range d.Certificates {
		add("Certificate of "+c.Side, clock(c.Expires), "expires in "+inWords(c.Expires.Sub(d.At)))
	}
	if r := d.Drain; r != nil {
		add("Drain", thousands(int64(r.ConnectionsLeft))+" connections left", fmt.Sprintf("at most %g s", r.TimeoutSeconds))
	}
	return t
}
