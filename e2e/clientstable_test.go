package e2e

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

var updateClientsTable = flag.Bool("update-clients-table", false, "write what real clients showed into docs/semantics.md, and did into docs/clients.md")

// clientsDocument holds the tables, between comments that name them. Its rows
// come from runs: nobody writes them by hand.
const clientsDocument = "../docs/semantics.md"

// sightings are what clients' users saw in one run: a line for each client and
// setting, a column for each thing looked at. They may be added concurrently.
type sightings struct {
	settings string // what the settings are; default "setting"
	columns  []string

	mu    sync.Mutex
	lines []sightingsLine // in the order of each client's run
}

type sightingsLine struct {
	client, version, setting string
	cells                    []string // one a column
}

// add notes what was seen in a column. What was seen there before, and is
// something else, stays.
func (s *sightings) add(t *testing.T, c clientOfLine, column, text string) {
	t.Helper()
	at := slices.Index(s.columns, column)
	if at < 0 {
		t.Fatalf("no column %q", column)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := slices.IndexFunc(s.lines, func(l sightingsLine) bool { return l.client == c.client && l.setting == c.setting })
	if of < 0 {
		of = len(s.lines)
		s.lines = append(s.lines, sightingsLine{c.client, c.version, c.setting, make([]string, len(s.columns))})
	}
	cell := &s.lines[of].cells[at]
	switch {
	case *cell == "":
		*cell = text
	case !slices.Contains(strings.Split(*cell, "; "), text):
		*cell += "; " + text
	}
}

// clientOfLine names a line.
type clientOfLine struct{ client, version, setting string }

// rows are a client's lines of the table. Settings that made no difference
// share one.
func (s *sightings) rows(client string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []sightingsLine
	settings := 0
	for _, l := range s.lines {
		if l.client != client {
			continue
		}
		settings++
		same := slices.IndexFunc(lines, func(other sightingsLine) bool { return slices.Equal(other.cells, l.cells) })
		if same < 0 {
			lines = append(lines, l)
		} else {
			lines[same].setting += "; " + l.setting
		}
	}
	var rows []string
	for _, l := range lines {
		if len(lines) == 1 && settings > 1 {
			l.setting = "any"
		}
		rows = append(rows, tableRow(slices.Concat([]string{l.client + " " + l.version, l.setting}, l.cells)))
	}
	return rows
}

// header is the table's first two lines.
func (s *sightings) header() string {
	return "\n" + tableRow(slices.Concat([]string{"client", cmp.Or(s.settings, "setting")}, s.columns)) + "\n" + strings.Repeat("|---", len(s.columns)+2) + "|\n"
}

func tableRow(cells []string) string { return "| " + strings.Join(cells, " | ") + " |" }

// checkDocument compares a table with what was seen. A client that did not run
// is left as it stands.
func checkDocument(t *testing.T, table string, seen *sightings) {
	t.Helper()
	text, err := os.ReadFile(clientsDocument)
	if err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(fmt.Sprintf(`(?s)(<!-- clients:%s -->\n)(.*?)(<!-- clients:%s:end -->)`, table, table))
	found := form.FindSubmatchIndex(text)
	if found == nil {
		t.Fatalf("%s has no table clients:%s", clientsDocument, table)
	}
	got := string(text[found[4]:found[5]])
	want := seen.header()
	for _, client := range realClients {
		rows := seen.rows(client.name)
		if rows == nil {
			rows = rowsOf(got, client.name)
		}
		for _, row := range rows {
			want += row + "\n"
		}
	}
	if *updateClientsTable {
		updated := slices.Concat(text[:found[4]], []byte(want), text[found[5]:])
		if err := os.WriteFile(clientsDocument, updated, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := gocmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("table clients:%s of %s is not what was seen (- seen, + written):\n%s"+
			"Run the test with -args -update-clients-table and read the difference.", table, clientsDocument, diff)
	}
}

// rowsOf are the lines of a table about a client, whatever its version.
func rowsOf(table, client string) []string {
	var rows []string
	for row := range strings.Lines(table) {
		if strings.HasPrefix(row, "| "+client+" ") {
			rows = append(rows, strings.TrimSuffix(row, "\n"))
		}
	}
	return rows
}

// TestRowsOfSightings holds how lines are joined.
func TestRowsOfSightings(t *testing.T) {
	seen := sightings{columns: []string{"x", "y"}}
	for _, setting := range []string{"a", "b"} {
		same, other := clientOfLine{"same", "1.0", setting}, clientOfLine{"other", "2.0", setting}
		seen.add(t, same, "x", "yes")
		seen.add(t, same, "y", "1")
		seen.add(t, same, "y", "2")
		seen.add(t, same, "y", "1")
		seen.add(t, other, "x", setting)
	}
	for client, want := range map[string][]string{
		"same":  {"| same 1.0 | any | yes | 1; 2 |"},
		"other": {"| other 2.0 | a | a |  |", "| other 2.0 | b | b |  |"},
		"none":  nil,
	} {
		if diff := gocmp.Diff(want, seen.rows(client)); diff != "" {
			t.Errorf("%s (- want, + got):\n%s", client, diff)
		}
	}
	if got, want := seen.header(), "\n| client | setting | x | y |\n|---|---|---|---|\n"; got != want {
		t.Errorf("header: got %q, want %q", got, want)
	}
}
