package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

// maxValueBytes bounds a value from standard input; brokers take about 1 MiB
// unless they are told otherwise.
const maxValueBytes = 100 << 20

type appendCmd struct {
	partitionFlags
	outputFlag
	clientFlags
	Expect  string        `help:"The offset the record must get (see next), or end." required:"" placeholder:"N"`
	Key     *string       `help:"Key; without it the record has none." placeholder:"TEXT"`
	Header  []string      `help:"A record header; may be repeated." sep:"none" placeholder:"NAME=VALUE"`
	Timeout time.Duration `help:"How long to try." default:"30s"`
	Value   *string       `arg:"" optional:"" help:"Value; without it, all of standard input."`

	ExpectedOffsetHeader   string            `help:"Name of that header, if a rule has another; default ${default}." default:"expected-offset" placeholder:"NAME"`
	ExpectedOffsetEncoding appender.Encoding `help:"How the rule has offsets written: decimal, or int64 (8 bytes, big-endian); default ${default}." enum:"decimal,int64" default:"decimal" placeholder:"ENCODING"`
	AppendIDHeader         string            `name:"append-id-header" help:"Name of that header; default ${default}." default:"append-id" placeholder:"NAME"`
}

// Help adds to the command's help.
func (appendCmd) Help() string {
	return `Appends one record at offset N of the partition, or not at all, and prints the
offset. With --expect end it is appended wherever the log ends. The record gets an append-id of its own (printed with --output json).
It is sent again only if it is certain that nothing was appended.

Exit status: 0 appended; 3 refused: standard error has expected and next;
4 outcome unknown: the record may be in the log, read the partition from N;
5 appended, but at another offset (the topic is under no rule at the address
asked, or a writer goes around the proxy); 1 not appended for another reason;
2 the command line is wrong.

Examples:
    offsetproxy append --bootstrap 127.0.0.1:9092 --topic events --expect 0 hello
    echo hello | offsetproxy append --bootstrap 127.0.0.1:9092 --topic events --expect 1 --key k --header trace=42`
}

// appendReport is what --output json prints.
type appendReport struct {
	Outcome   string           `json:"outcome"`
	Topic     string           `json:"topic"`
	Partition int32            `json:"partition"`
	Expected  *appender.Offset `json:"expected,omitempty"` // nil: end
	Offset    *appender.Offset `json:"offset,omitempty"`
	Next      *appender.Offset `json:"next,omitempty"`
	AppendID  string           `json:"append_id"`
	Code      *appender.Code   `json:"code,omitempty"`
	Message   string           `json:"message,omitempty"`
}

// Run appends the record.
func (c *appendCmd) Run(env *environment) error {
	record, err := c.record(env.stdin)
	if err != nil {
		return err
	}
	way, err := c.way()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(env.ctx, c.Timeout)
	defer cancel()
	client := appender.New(appender.Config{Bootstrap: c.Bootstrap, ClientID: clientID, Dial: way.loggedIn()})
	defer client.Close()
	offset, err := client.AppendPatiently(ctx, record)

	report := appendReport{
		Topic: c.Topic, Partition: c.Partition,
		AppendID: hex.EncodeToString(record.AppendID),
	}
	if !record.AtEnd {
		report.Expected = &record.Expected
	}
	code := report.fill(offset, err)
	if code == exitElsewhere {
		report.Message = fmt.Sprintf("appended at %d, not at %d: nothing checked the condition. Is %s a proxy where a rule with mode enforce or require, and the header %s as %s, holds for topic %q?",
			offset, record.Expected, strings.Join(c.Bootstrap, ","), c.ExpectedOffsetHeader, c.ExpectedOffsetEncoding, c.Topic)
	}
	if c.Output == outputJSON {
		if err := printJSON(env.stdout, report); err != nil {
			return err
		}
		if code == exitOK {
			return nil
		}
		return &exitError{code: code}
	}
	switch code {
	case exitOK, exitElsewhere:
		fmt.Fprintln(env.stdout, offset)
		if code == exitOK {
			return nil
		}
		return &exitError{code, errors.New(report.Message)}
	case exitRefused:
		fmt.Fprintln(env.stderr, report.refusal())
		return &exitError{code: code}
	case exitUnknown:
		from := "near its end"
		if !record.AtEnd {
			from = "from " + c.Expect
		}
		return &exitError{code, fmt.Errorf("%w\nThe record may be in the log, or still arrive. Read the partition %s and look for append-id %s before you append again",
			err, from, report.AppendID)}
	}
	return err
}

// record makes the record of the command line.
func (c *appendCmd) record(stdin io.Reader) (appender.Record, error) {
	r := appender.Record{
		Topic:                c.Topic,
		Partition:            appender.Partition(c.Partition),
		AppendID:             appender.NewAppendID(),
		Timestamp:            time.Now().UnixMilli(),
		ExpectedOffsetHeader: c.ExpectedOffsetHeader, Encoding: c.ExpectedOffsetEncoding, AppendIDHeader: c.AppendIDHeader,
	}
	if c.ExpectedOffsetHeader == "" || c.AppendIDHeader == "" || c.ExpectedOffsetHeader == c.AppendIDHeader {
		return r, usage("the two headers of a condition need names, and not the same")
	}
	expected, err := strconv.ParseUint(c.Expect, 10, 63)
	switch {
	case c.Expect == "end":
		r.AtEnd, r.Expected = true, appender.NoOffset
	case err != nil:
		return r, usage("--expect %q is not an offset: a whole number from 0 on, such as `offsetproxy next` prints, or end", c.Expect)
	default:
		r.Expected = appender.Offset(expected)
	}
	if c.Partition < 0 {
		return r, usage("--partition %d: partitions count from 0", c.Partition)
	}
	if c.Key != nil {
		r.Key = []byte(*c.Key)
	}
	for _, h := range c.Header {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return r, usage("--header %q is not NAME=VALUE", h)
		}
		if name == c.ExpectedOffsetHeader || name == c.AppendIDHeader {
			return r, usage("--header %s: append sets this header itself", name)
		}
		r.Headers = append(r.Headers, appender.Header{Name: name, Value: []byte(value)})
	}
	if c.Value != nil {
		r.Value = []byte(*c.Value)
		return r, nil
	}
	r.Value, err = io.ReadAll(io.LimitReader(stdin, maxValueBytes+1))
	if err != nil {
		return r, fmt.Errorf("read the value: %w", err)
	}
	if len(r.Value) > maxValueBytes {
		return r, usage("the value on standard input is larger than 100 MiB")
	}
	return r, nil
}

// fill tells the outcome and gives the exit code for it.
func (r *appendReport) fill(offset appender.Offset, err error) int {
	var (
		refused  *appender.RefusedError
		unknown  *appender.UnknownError
		answered *appender.BrokerError
	)
	switch {
	case err == nil:
		r.Offset = &offset
		if r.Expected != nil && offset != *r.Expected {
			r.Outcome = "appended elsewhere"
			return exitElsewhere
		}
		r.Outcome = "appended"
		return exitOK
	case errors.As(err, &refused):
		r.Outcome, r.Code, r.Message = "refused: "+string(refused.Reason), &refused.Code, refused.Message
		if refused.Next != appender.NoOffset {
			r.Next = &refused.Next
		}
		return exitRefused
	case errors.As(err, &unknown):
		r.Outcome, r.Message = "unknown", unknown.Error()
		if unknown.Code != 0 {
			r.Code, r.Message = &unknown.Code, unknown.Message
		}
		return exitUnknown
	case errors.As(err, &answered):
		r.Outcome, r.Code, r.Message = "not appended", &answered.Code, answered.Message
	default:
		r.Outcome, r.Message = "not appended", err.Error()
	}
	return exitFailed
}

// refusal is the line for a person, and for a script that cuts it at "=".
func (r *appendReport) refusal() string {
	s := r.Outcome + ":"
	if r.Expected != nil {
		s += fmt.Sprintf(" expected=%d", *r.Expected)
	}
	if r.Next != nil {
		s += fmt.Sprintf(" next=%d", *r.Next)
	}
	return s
}
