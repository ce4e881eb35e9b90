package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"
)

// What every client does for clientmatrix_test.go; the other clients' programs do
// the same.
const (
	matrixPartitions = 3
	matrixRecords    = 2 // in each partition
	matrixTimeout    = 30 * time.Second
	matrixConfig     = "retention.ms"
	matrixSetting    = "3600000"
)

// errCannot is of what a client does not have, with why.
var errCannot = errors.New("cannot")

func cannot(why string) error { return fmt.Errorf("%w%s", errCannot, why) }

// writing is how records are to be written.
type writing struct {
	codec      string // "": none
	acks       string // "": all
	idempotent bool
}

// groupKind is a protocol of groups.
type groupKind string

const (
	classicGroup  groupKind = "classic"
	consumerGroup groupKind = "consumer"
	shareGroup    groupKind = "share"
)

// subject is a client that does everything. Each method is about the topic that it
// was made for, if it takes none.
type subject interface {
	produce(values []record, how writing) error
	transact(committed, aborted []record) error
	// read goes on until reading is done, and commits.
	read(group string, kind groupKind, r *reading) error
	topics(name string) error
	cluster() error
	configs() error
	groups(group string) error
	// appendAt returns the offset of a record that expects one.
	appendAt(topic string, expected int64) (int64, error)
	// refused tells whether an error is Kafka's 1.
	refused(error) bool
}

var subjects = map[string]func(bootstrap, topic string) (subject, error){
	"franz":     newFranzSubject,
	"sarama":    newSaramaSubject,
	"segmentio": newSegmentioSubject,
}

// record is one to write.
type record struct {
	partition int32
	value     string
}

func recordsOf(tag string) []record {
	var all []record
	for partition := range int32(matrixPartitions) {
		for i := range matrixRecords {
			all = append(all, record{partition, fmt.Sprintf("%s/%d/%d/%s", tag, partition, i, strings.Repeat("x", 200))})
		}
	}
	return all
}

// valueSet has values as keys.
type valueSet map[string]bool

func (s valueSet) add(records []record) {
	for _, r := range records {
		s[r.value] = true
	}
}

// reading is what a consumer must come to read, and must never.
type reading struct {
	missing, forbidden valueSet
	deadline           time.Time
	failed             error
}

func newReading(expected, forbidden valueSet) *reading {
	return &reading{maps.Clone(expected), maps.Clone(forbidden), time.Now().Add(matrixTimeout), nil}
}

// took notes what was read; false: that was all, or too much.
func (r *reading) took(value []byte) bool {
	if r.forbidden[string(value)] {
		r.failed = fmt.Errorf("read %.24s", value)
	}
	delete(r.missing, string(value))
	return r.goesOn()
}

func (r *reading) goesOn() bool {
	if r.failed == nil && len(r.missing) > 0 && time.Now().After(r.deadline) {
		r.failed = fmt.Errorf("%d records not read", len(r.missing))
	}
	return r.failed == nil && len(r.missing) > 0
}

// matrixRun is one client's way through everything.
type matrixRun struct {
	subject
	topic            string
	written, aborted valueSet
}

// runMatrix prints "version VERSION", and for each thing to do "ok NAME", "cannot
// NAME: WHY" or "failed NAME: WHY". Addresses that the client was told are printed as
// "broker HOST:PORT". The kinds of groups that the brokers have are in MATRIX_GROUPS.
func runMatrix(name, bootstrap, topic, fenced string) error {
	s, err := subjects[name](bootstrap, topic)
	if err != nil {
		return err
	}
	fmt.Println("version", versionOf(libraries[name].module))
	run := matrixRun{s, topic, valueSet{}, valueSet{}}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		step("codec/"+codec, func() error { return run.write("codec-"+codec, writing{codec: codec}) })
	}
	for _, acks := range []string{"all", "1", "0"} {
		step("acks/"+acks, func() error { return run.write("acks-"+acks, writing{acks: acks}) })
	}
	step("idempotent", func() error { return run.write("idempotent", writing{idempotent: true}) })
	step("transactions", run.transactions)
	for kind := range strings.FieldsSeq(os.Getenv("MATRIX_GROUPS")) {
		step("group/"+kind, func() error { return run.group(groupKind(kind)) })
	}
	step("admin/topics", func() error { return run.topics(topic + "-made") })
	step("admin/cluster", run.cluster)
	step("admin/configs", run.configs)
	step("admin/groups", func() error { return run.groups(topic + "-" + string(classicGroup)) })
	step("conditions", func() error { return run.conditions(fenced) })
	return nil
}

func step(name string, do func() error) {
	switch err := do(); {
	case err == nil:
		fmt.Println("ok", name)
	case errors.Is(err, errCannot):
		fmt.Printf("cannot %s: %s\n", name, strings.TrimPrefix(err.Error(), errCannot.Error()))
	default:
		fmt.Printf("failed %s: %s\n", name, strings.Join(strings.Fields(err.Error()), " "))
	}
}

func tellBroker(address string) { fmt.Println("broker", address) }

func (m *matrixRun) write(tag string, how writing) error {
	records := recordsOf(tag)
	if err := m.produce(records, how); err != nil {
		return err
	}
	m.written.add(records)
	return nil
}

func (m *matrixRun) transactions() error {
	committed, aborted := recordsOf("committed"), recordsOf("aborted")
	if err := m.transact(committed, aborted); err != nil {
		return err
	}
	m.written.add(committed)
	m.aborted.add(aborted)
	return nil
}

// group reads all, commits, and has another member go on behind that.
func (m *matrixRun) group(kind groupKind) error {
	group, tag := m.topic+"-"+string(kind), "behind-"+string(kind)
	first := newReading(m.written, m.aborted)
	if err := errors.Join(m.read(group, kind, first), first.failed); err != nil {
		return err
	}
	before, behind := maps.Clone(m.written), valueSet{}
	maps.Copy(before, m.aborted)
	behind.add(recordsOf(tag))
	if err := m.write(tag, writing{}); err != nil {
		return err
	}
	second := newReading(behind, before)
	return errors.Join(m.read(group, kind, second), second.failed)
}

func (m *matrixRun) conditions(fenced string) error {
	for at := range int64(2) {
		offset, err := m.appendAt(fenced, at)
		if err != nil || offset != at {
			return fmt.Errorf("append at %d: offset %d, %w", at, offset, err)
		}
		if offset, err = m.appendAt(fenced, at); err == nil || !m.refused(err) {
			return fmt.Errorf("append at %d again: offset %d, %w", at, offset, err)
		}
	}
	return nil
}

// awaited asks until holds.
func awaited(holds func() (bool, error)) error {
	for deadline := time.Now().Add(matrixTimeout); ; {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("not so in time")
		}
		time.Sleep(50 * time.Millisecond)
	}
}
