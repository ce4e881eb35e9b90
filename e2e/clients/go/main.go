// Command go is the Go clients' part of refusals_test.go, which lists the
// commands that it reads:
//
//	go CLIENT    with CLIENT franz, sarama or segmentio
//
// Or of clientmatrix_test.go, about topics of three partitions; FENCED has a rule:
//
//	go CLIENT BOOTSTRAP TOPIC FENCED
//
// It is a module of its own, so that these clients are none of the product's
// dependencies.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
)

// command is one line of standard input.
type command struct {
	Do       string `json:"do"`
	Tag      string `json:"tag"`
	Producer string `json:"producer"`

	Bootstrap string `json:"bootstrap"`

	Idempotent      bool   `json:"idempotent"`
	Acks            string `json:"acks"`
	BatchBytes      int32  `json:"batch_bytes"`
	TransactionalID string `json:"transactional_id"`
	Retries         int    `json:"retries"`

	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Value     string   `json:"value"`
	Headers   []header `json:"headers"`
	Timestamp int64    `json:"timestamp"`
}

type header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// producer is one of a library's. send reports by done or failed, later.
type producer interface {
	send(command)
	begin() error
	commit() error
	abort() error
	close()
}

// library opens producers and asks for a partition's next offset.
type library struct {
	module string
	open   func(command) (producer, error)
	next   func(command) (int64, error)
	// describe gives what a user tells errors apart by, and the broker's code
	// or 0.
	describe func(error) (kind string, code int16)
}

var libraries = map[string]library{
	"franz":     {"github.com/twmb/franz-go", openFranz, nextFranz, describeFranz},
	"sarama":    {"github.com/IBM/sarama", openSarama, nextSarama, describeSarama},
	"segmentio": {"github.com/segmentio/kafka-go", openSegmentio, nextSegmentio, describeSegmentio},
}

var errNoTransactions = errors.New("this client has no transactions")

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch len(args) {
	case 1:
	case 4:
		return runMatrix(args[0], args[1], args[2], args[3])
	default:
		return errors.New("usage: go CLIENT [BOOTSTRAP TOPIC FENCED]")
	}
	library := libraries[args[0]]
	reports.describe = library.describe
	reports.say(map[string]any{"version": versionOf(library.module)})
	producers := make(map[string]producer)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return err
		}
		offset, err := int64(-1), error(nil)
		switch c.Do {
		case "send":
			producers[c.Producer].send(c)
			continue
		case "open":
			producers[c.Producer], err = library.open(c)
		case "begin":
			err = producers[c.Producer].begin()
		case "commit":
			err = producers[c.Producer].commit()
		case "abort":
			err = producers[c.Producer].abort()
		case "next":
			offset, err = library.next(c)
		case "close":
			producers[c.Producer].close()
		default:
			return fmt.Errorf("unknown command %q", c.Do)
		}
		reports.ended(c.Tag, offset, err)
	}
	return lines.Err()
}

func versionOf(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version[1:]
		}
	}
	return ""
}

// printer writes one report a line, whoever calls.
type printer struct {
	mu       sync.Mutex
	describe func(error) (string, int16)
}

var reports printer

// ended reports what became of the command with this tag; offset is −1 where
// there is none.
func (p *printer) ended(tag string, offset int64, err error) {
	if err == nil {
		p.say(map[string]any{"tag": tag, "offset": offset})
		return
	}
	kind, code := p.describe(err)
	p.say(map[string]any{"tag": tag, "error": map[string]any{"kind": kind, "code": code, "message": err.Error()}})
}

func (p *printer) say(report map[string]any) {
	line, err := json.Marshal(report)
	if err != nil {
		panic(err) // of strings and numbers
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Printf("%s\n", line)
}
