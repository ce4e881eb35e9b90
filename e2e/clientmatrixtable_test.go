package e2e

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// matrixDocument holds the tables that matrix.checkDocument writes.
const matrixDocument = "../docs/clients.md"

// toolsClient are Kafka's own tools; they have a table of their own.
const toolsClient = "tools"

// matrixColumn is a column of the table: one thing to do, or some.
type matrixColumn struct {
	title string
	names []string
}

var matrixColumns = []matrixColumn{
	{"codecs", []string{"codec/none", "codec/gzip", "codec/snappy", "codec/lz4", "codec/zstd"}},
	{"acks", []string{"acks/0", "acks/1", "acks/all"}},
	{"idempotent", []string{"idempotent"}},
	{"transactions", []string{"transactions"}},
	{"group, classic", []string{"group/classic"}},
	{"group, KIP-848", []string{"group/consumer"}},
	{"share group", []string{"group/share"}},
	{"create, delete topics", []string{"admin/topics"}},
	{"describe cluster", []string{"admin/cluster"}},
	{"describe, alter configs", []string{"admin/configs"}},
	{"list, describe groups", []string{"admin/groups"}},
	{"conditions", []string{conditionsDone}},
}

// cell is what a client did of a column.
func (c matrixColumn) cell(r *matrixResult) string {
	var done []string
	for _, name := range c.names {
		if slices.Contains(r.done, name) {
			_, short, _ := strings.Cut(name, "/")
			done = append(done, short)
		}
	}
	switch len(done) {
	case 0:
		return "–"
	case len(c.names):
		if len(c.names) == 1 {
			return "yes"
		}
		return "all"
	}
	return strings.Join(done, ", ")
}

// row is a client's line of the table.
func (r *matrixResult) row() string {
	cells := []string{r.client + " " + r.version}
	for _, column := range matrixColumns {
		cells = append(cells, column.cell(r))
	}
	return tableRow(cells)
}

// why is a client's line of the list of what it lacks.
func (r *matrixResult) why() string {
	var reasons []string
	of := map[string][]string{}
	for _, lack := range r.lacks {
		if of[lack.why] == nil {
			reasons = append(reasons, lack.why)
		}
		of[lack.why] = append(of[lack.why], lackTitle(lack.name))
	}
	var told []string
	for _, reason := range reasons {
		told = append(told, strings.Join(of[reason], ", ")+": "+reason)
	}
	if told == nil {
		told = []string{"nothing"}
	}
	return "- " + r.client + " " + r.version + ": " + strings.Join(told, "; ") + "."
}

func lackTitle(name string) string {
	for _, column := range matrixColumns {
		if slices.Contains(column.names, name) {
			if len(column.names) > 1 {
				return strings.ReplaceAll(name, "/", " ")
			}
			return column.title
		}
	}
	return name
}

// checkDocument compares the tables of a version of Kafka with what was done. What did
// not run is left as it stands, and versions without tables have none.
func (m *matrix) checkDocument(t *testing.T, kafka string) {
	t.Helper()
	text, err := os.ReadFile(matrixDocument)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(m.results, func(a, b *matrixResult) int {
		at := func(r *matrixResult) int {
			return slices.IndexFunc(matrixClients, func(c matrixClient) bool { return c.name == r.client })
		}
		return cmp.Or(cmp.Compare(at(a), at(b)), compareBools(a.older, b.older))
	})
	updated := string(text)
	for table, written := range map[string]func(stands string) string{
		"matrix-" + kafka: m.table, "lacks-" + kafka: m.lacks, "tools-" + kafka: m.tools,
	} {
		form := regexp.MustCompile(fmt.Sprintf(`(?s)(<!-- %s -->\n)(.*?)(<!-- %s:end -->)`, regexp.QuoteMeta(table), regexp.QuoteMeta(table)))
		found := form.FindStringSubmatchIndex(updated)
		if found == nil {
			continue
		}
		got := updated[found[4]:found[5]]
		want := written(got)
		updated = updated[:found[4]] + want + updated[found[5]:]
		if diff := gocmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" && !*updateClientsTable {
			t.Errorf("%s of %s is not what was done (- done, + written):\n%s"+
				"Run the test with -args -update-clients-table and read the difference.", table, matrixDocument, diff)
		}
	}
	if *updateClientsTable {
		if err := os.WriteFile(matrixDocument, []byte(updated), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// table is that of the clients, with the rows that stand of what did not run.
func (m *matrix) table(stands string) string {
	header := []string{"client"}
	for _, column := range matrixColumns {
		header = append(header, column.title)
	}
	text := "\n" + tableRow(header) + "\n" + strings.Repeat("|---", len(header)) + "|\n"
	return text + m.lines(stands, "| ", (*matrixResult).row) + "\n"
}

func (m *matrix) lacks(stands string) string {
	return "\n" + m.lines(stands, "- ", (*matrixResult).why) + "\n"
}

// lines are one of each version of each client. A client's second is of its older
// version.
func (m *matrix) lines(stands, start string, line func(*matrixResult) string) string {
	var text strings.Builder
	for _, client := range matrixClients {
		var standing []string
		for one := range strings.Lines(stands) {
			if strings.HasPrefix(one, start+client.name+" ") {
				standing = append(standing, strings.TrimSuffix(one, "\n"))
			}
		}
		for i := range client.versions {
			at := slices.IndexFunc(m.results, func(r *matrixResult) bool { return r.client == client.name && r.older == (i > 0) })
			one := ""
			switch {
			case at >= 0:
				one = line(m.results[at])
			case i < len(standing): // the newest was there first
				one = standing[i]
			default: // it never ran
				continue
			}
			text.WriteString(one + "\n")
		}
	}
	return text.String()
}

// tools is the table of Kafka's own tools.
func (m *matrix) tools(stands string) string {
	at := slices.IndexFunc(m.results, func(r *matrixResult) bool { return r.client == toolsClient })
	if at < 0 {
		return stands
	}
	var names []string
	uses := map[string][]string{}
	for _, done := range m.results[at].done {
		name, use, _ := strings.Cut(done, "/")
		if uses[name] == nil {
			names = append(names, name)
		}
		uses[name] = append(uses[name], use)
	}
	slices.Sort(names)
	text := "\n| tool | did |\n|---|---|\n"
	for _, name := range names {
		text += tableRow([]string{name, strings.Join(uses[name], ", ")}) + "\n"
	}
	return text + "\n"
}
