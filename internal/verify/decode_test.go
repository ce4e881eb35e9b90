package verify

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// written gives a history as a run writes it.
func written(h *History) []byte {
	var file bytes.Buffer
	r := newRecorder(&file)
	r.setup(h.Setup)
	for p := range h.Logs {
		r.write(appendBegin(nil, Partition(p), h.Logs[p].Begin))
	}
	for writer, ops := range h.Ops {
		for number := range ops {
			id := AppendID{int32(writer), AppendNumber(number)}
			r.write(appendOp(nil, id, &ops[number]))
			for i := range ops[number].Tries {
				r.write(appendTry(nil, id, &ops[number], &ops[number].Tries[i]))
			}
		}
	}
	for p, reads := range h.Reads {
		for _, read := range reads {
			r.write(appendEndRead(nil, Partition(p), read))
		}
	}
	for p := range h.Logs {
		r.log(Partition(p), &h.Logs[p])
	}
	if err := r.flush(); err != nil {
		panic(err)
	}
	return file.Bytes()
}

func TestWhatIsWrittenIsReadAgain(t *testing.T) {
	s := good()
	s.push(Stored{Missing: true}, Stored{})
	for i := range 3 * logLineRecords {
		s.push(s.record(won, uint16(i)))
	}
	got, err := ReadHistory(bytes.NewReader(written(s.History)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.History, got, cmpopts.IgnoreUnexported(History{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	if !got.Complete() {
		t.Error("its logs are not complete")
	}
}

// TestAHistoryThatIsCutOff is of a run that was killed: what there is can be read, and it
// is never taken for all.
func TestAHistoryThatIsCutOff(t *testing.T) {
	file := written(good().History)
	first := bytes.IndexByte(file, '\n') + 1
	for n := range len(file) {
		h, err := ReadHistory(bytes.NewReader(file[:n]))
		switch {
		case n < first-1:
			if !errors.Is(err, ErrBadHistory) {
				t.Fatalf("cut at %d: got %v", n, err)
			}
		case err != nil:
			t.Fatalf("cut at %d: %v", n, err)
		case h.Complete() && n < len(file)-1:
			t.Fatalf("cut at %d: it is taken for complete", n)
		case h.Cut != (file[n-1] != '\n' && file[n] != '\n'):
			t.Fatalf("cut at %d: Cut is %v", n, h.Cut)
		}
	}
}

func TestBadHistories(t *testing.T) {
	const run = `{"type":"run","run":"r","topic":"t","proxies":["a:1"],"partitions":1,"writers":1,"seed":1}` + "\n"
	const op = `{"type":"op","writer":0,"op":0,"partition":0,"habit":"once","expected":0,"records":2}` + "\n"
	for name, text := range map[string]string{
		"empty":                      "",
		"not JSON":                   "offset 7\n",
		"an array":                   "[]\n",
		"no run":                     op,
		"no writers":                 strings.Replace(run, `"writers":1`, `"writers":0`, 1),
		"too many partitions":        strings.Replace(run, `"partitions":1`, `"partitions":1000000000`, 1),
		"no proxies":                 strings.Replace(run, `["a:1"]`, `[]`, 1),
		"unknown type":               run + `{"type":"x"}` + "\n",
		"another partition":          run + strings.Replace(op, `"partition":0`, `"partition":1`, 1),
		"negative partition":         run + strings.Replace(op, `"partition":0`, `"partition":-1`, 1),
		"another writer":             run + strings.Replace(op, `"writer":0`, `"writer":1`, 1),
		"appends out of order":       run + strings.Replace(op, `"op":0`, `"op":1`, 1),
		"an append twice":            run + op + op,
		"unknown habit":              run + strings.Replace(op, "once", "never", 1),
		"no records":                 run + strings.Replace(op, `"records":2`, `"records":0`, 1),
		"too many records":           run + strings.Replace(op, `"records":2`, `"records":60000`, 1),
		"no expected offset":         run + strings.Replace(op, `"expected":0,`, ``, 1),
		"expected offset of an end":  run + strings.Replace(op, "once", "end", 1),
		"an offset of no log":        run + strings.Replace(op, `"expected":0`, `"expected":9223372036854775807`, 1),
		"a number that is none":      run + strings.Replace(op, `"records":2`, `"records":2.5`, 1),
		"a try of nothing":           run + `{"type":"try","writer":0,"op":0,"outcome":"ok","offset":0,"start":1,"end":2}` + "\n",
		"unknown outcome":            run + op + `{"type":"try","outcome":"good","start":1,"end":2}` + "\n",
		"success nowhere":            run + op + `{"type":"try","outcome":"ok","start":1,"end":2}` + "\n",
		"a try that ends before":     run + op + `{"type":"try","outcome":"unknown","start":3,"end":2}` + "\n",
		"records that are not there": run + op + `{"type":"try","outcome":"unknown","start":1,"end":2,"first":1,"records":2}` + "\n",
		"another proxy":              run + op + `{"type":"try","outcome":"unknown","start":1,"end":2,"proxy":1}` + "\n",
		"an end of nothing":          run + `{"type":"end","start":1,"end":2}` + "\n",
		"a gap in the log":           run + `{"type":"log","offset":1,"names":["0/0/0"]}` + "\n",
		"a log that goes on":         run + `{"type":"read","offset":0}` + "\n" + `{"type":"log","offset":0,"names":["0/0/0"]}` + "\n",
		"a log that ends elsewhere":  run + `{"type":"read","offset":4}` + "\n",
		"a begin behind it":          run + `{"type":"log","offset":0,"names":["0/0/0"]}` + "\n" + `{"type":"begin","offset":4}` + "\n",
		"a begin behind its end":     run + `{"type":"read","offset":0}` + "\n" + `{"type":"begin","offset":4}` + "\n",
		"a long line":                run + `{"type":"` + strings.Repeat("x", maxLine) + `"}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ReadHistory(strings.NewReader(text)); !errors.Is(err, ErrBadHistory) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := ReadHistory(iotest.ErrReader(io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a file that cannot be read: got %v", err)
	}
}

func TestNames(t *testing.T) {
	id := RecordID{AppendID{3, 17}, 4}
	name := string(appendName(nil, "run", id))
	if got, ok := parseName(name, "run"); !ok || got != id {
		t.Errorf("%q: got %v, %v", name, got, ok)
	}
	for _, other := range []string{"", "x", "verify/run", "verify/run/", "verify/other/3/17/4", "verify/run/3/17", "verify/run/3/17/4/5", "verify/run/-3/17/4", "verify/run/3/17/70000"} {
		if got, ok := parseName(other, "run"); ok {
			t.Errorf("%q: got %v", other, got)
		}
	}
}

// stored are histories in testdata, with what is wrong in each.
var stored = map[string][]Kind{
	"clean.jsonl":     nil,
	"uncovered.jsonl": {SuccessMisplaced, Twice, Order},
}

// TestStoredHistories says the same as when they were stored.
func TestStoredHistories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) < len(stored) {
		t.Fatalf("got files %v, error %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			h, err := ReadHistory(bytes.NewReader(text))
			if err != nil || !h.Complete() {
				t.Fatalf("got error %v", err)
			}
			v := Judge(h, time.Minute)
			want, known := stored[filepath.Base(file)]
			for kind := range v.Kinds {
				if !slices.Contains(want, kind) {
					t.Errorf("it has %d violations of kind %q", v.Kinds[kind], kind)
				}
			}
			if !known || v.Verified() != (len(want) == 0) {
				t.Errorf("got %v, want %v", v.Kinds, want)
			}
		})
	}
}

func FuzzReadHistory(f *testing.F) {
	f.Add(written(good().History))
	f.Add([]byte(`{"type":"run","proxies":["a"],"partitions":2,"writers":2}` + "\n" + `{"type":"log","partition":1,"offset":0,"names":["","?","0/0/0"]}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		h, err := ReadHistory(bytes.NewReader(file))
		if err != nil {
			return
		}
		// Whatever it says, it can be checked, and says the same when it is written.
		v := Judge(h, 100*time.Millisecond)
		if !v.Verified() {
			if err := v.Draw(io.Discard); err != nil {
				t.Error(err)
			}
		}
	})
}
