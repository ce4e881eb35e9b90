package proxy_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/kafkatest"
	"github.com/offsetproxy/offsetproxy/proxy"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestPipelinedRequestsKeepOrderAndCorrelationIDs(t *testing.T) {
	p := scripted(t, proxy.Config{}, echo)
	c := kafkatest.Dial(t, p.Addr())
	const rounds = 200
	var want []int32
	var frames []byte
	id := int32(-7) // clients may use any id, twice too
	add := func(r kmsg.Request, answered bool) {
		frames = append(frames, kafkatest.RequestFrame(id, r)...)
		if answered {
			want = append(want, id)
		}
		id += 3
	}
	for i := range rounds {
		add(versioned(kmsg.NewPtrApiVersionsRequest(), 99), true) // answered by the proxy
		add(versioned(kmsg.NewPtrListGroupsRequest(), 4), true)
		add(produceRequest(int16(i%14), 0), false)
		add(produceRequest(int16(i%14), 1), true)
		add(versioned(kmsg.NewPtrMetadataRequest(), 9), true)
		add(versioned(kmsg.NewPtrListGroupsRequest(), 0), true)
	}
	c.SendBytes(frames)
	for i, w := range want {
		if got := c.NextID(); got != w {
			t.Fatalf("answer %d: got correlation id %d, want %d", i, got, w)
		}
	}
}

func TestRequestsArriveUnchangedButForTheCorrelationID(t *testing.T) {
	seen := make(chan []byte, 16)
	p := scripted(t, proxy.Config{}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		seen <- append([]byte(nil), r.Frame...)
		return echo(c, r)
	})
	c := kafkatest.Dial(t, p.Addr())
	for _, r := range []kmsg.Request{
		versioned(kmsg.NewPtrFetchRequest(), 4),
		versioned(kmsg.NewPtrFetchRequest(), 15),
		versioned(kmsg.NewPtrSASLHandshakeRequest(), 1),
		versioned(kmsg.NewPtrSASLAuthenticateRequest(), 2),
		produceRequest(13, -1),
	} {
		sent := kafkatest.RequestFrame(77, r)[4:]
		c.Send(77, r)
		if got := c.NextID(); got != 77 {
			t.Fatalf("%T: got correlation id %d, want 77", r, got)
		}
		got := <-seen
		binary.BigEndian.PutUint32(got[4:], 77)
		if !bytes.Equal(got, sent) {
			t.Errorf("%T arrived as\n%x, sent\n%x", r, got, sent)
		}
	}
}

func TestUnknownAPIsPass(t *testing.T) {
	p := scripted(t, proxy.Config{}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		frame := kafkatest.AnswerFrame(r, append([]byte("answer to "), r.Frame[8:]...))
		_, err := c.Write(frame)
		return err == nil
	})
	c := kafkatest.Dial(t, p.Addr())
	for _, key := range []uint16{999, 32767, 65535} {
		body := []byte("whatever")
		frame := kafkatest.Length(uint32(8 + len(body)))
		frame = binary.BigEndian.AppendUint16(frame, key)
		frame = binary.BigEndian.AppendUint16(frame, 3)
		frame = append(binary.BigEndian.AppendUint32(frame, 5), body...)
		c.SendBytes(frame)
		want := append([]byte{0, 0, 0, 5}, "answer to whatever"...)
		if got := c.Next(); !bytes.Equal(got, want) {
			t.Errorf("key %d: got %q, want %q", key, got, want)
		}
	}
}

func TestAcks0HasNoAnswerInAnyVersion(t *testing.T) {
	for version := int16(0); version <= 13; version++ {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			var produced atomic.Int32
			p := scripted(t, proxy.Config{}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
				if r.APIKey == int16(kmsg.Produce) {
					produced.Add(1)
					return true
				}
				return echo(c, r)
			})
			c := kafkatest.Dial(t, p.Addr())
			c.Send(1, produceRequest(version, 0), produceRequest(version, 0), versioned(kmsg.NewPtrListGroupsRequest(), 1))
			if got := c.NextID(); got != 3 {
				t.Errorf("got an answer to %d, want to 3", got)
			}
			if got := produced.Load(); got != 2 {
				t.Errorf("broker saw %d Produce requests, want 2", got)
			}
		})
	}
}

func TestAcks0SentJustBeforeClosingArrives(t *testing.T) {
	const records = 50
	arrived := make(chan struct{}, records)
	closed := make(chan struct{})
	var p *running
	p = scripted(t, proxy.Config{}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		if r.APIKey == int16(kmsg.Produce) {
			arrived <- struct{}{}
			return true
		}
		// Busy until after the client has closed. Were the connection closed
		// here too, this late answer would reset it, and the kernel would
		// drop the records that were not read yet.
		<-closed
		for until := time.Now().Add(100 * time.Millisecond); time.Now().Before(until) && p.metric("offsetproxy.connections.open", "") > 0; {
			time.Sleep(time.Millisecond)
		}
		return echo(c, r)
	})
	c := kafkatest.Dial(t, p.Addr())
	frames := kafkatest.RequestFrame(1, listGroups())
	for i := range int32(records) {
		r := produceRequest(9, 0)
		r.Topics[0].Partitions[0].Records = make([]byte, 10<<10)
		frames = append(frames, kafkatest.RequestFrame(2+i, r)...)
	}
	c.SendBytes(frames)
	_ = c.Close()
	close(closed)
	await(t, "all records arrive", func() bool { return len(arrived) == records })
}

func TestLargeAnswerIsStreamed(t *testing.T) {
	const size = 64 << 20
	half := make(chan struct{})
	p := scripted(t, proxy.Config{MaxRewrittenBytes: 1 << 20}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		if r.APIKey != int16(kmsg.Fetch) {
			return echo(c, r)
		}
		header := binary.BigEndian.AppendUint32(kafkatest.Length(size), uint32(r.CorrelationID))
		if _, err := c.Write(header); err != nil {
			return false
		}
		chunk := make([]byte, 1<<20)
		for sent := 4; sent < size; {
			n := min(len(chunk), size-sent)
			if sent > size/2 && half != nil {
				<-half
				half = nil
			}
			if _, err := c.Write(chunk[:n]); err != nil {
				return false
			}
			sent += n
		}
		return true
	})
	c := kafkatest.Dial(t, p.Addr())
	c.Send(1, versioned(kmsg.NewPtrFetchRequest(), 4), versioned(kmsg.NewPtrListGroupsRequest(), 0))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	// The first half must come before the broker has sent the second.
	if _, err := io.CopyN(io.Discard, c.Conn, size/2); err != nil {
		t.Fatalf("first half: %v", err)
	}
	close(half)
	if _, err := io.CopyN(io.Discard, c.Conn, 4+size-size/2); err != nil {
		t.Fatalf("second half: %v", err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
		t.Errorf("relaying %d bytes allocated %d", size, got)
	}
	if got := c.NextID(); got != 2 {
		t.Errorf("next answer is to %d, want 2", got)
	}
}

func TestApiVersionsAreNarrowed(t *testing.T) {
	p := scripted(t, proxy.Config{}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		answer := kmsg.NewPtrApiVersionsResponse()
		for _, key := range []int16{0, 1, 3, 10, 17, 18, 55, 60, 78, 79, 999} {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MinVersion, k.MaxVersion = key, 0, 99
			answer.ApiKeys = append(answer.ApiKeys, k)
		}
		answer.ApiKeys[0].MinVersion = 3
		c.Answer(r, answer)
		return true
	})
	want := map[int16][2]int16{
		0: {0, 13}, 1: {0, 15}, 3: {0, 13}, 10: {0, 6}, 17: {0, 1}, 18: {0, 5},
		55: {0, 1}, 60: {0, 2}, 78: {0, 2}, 79: {0, 2}, 999: {0, 99},
	}
	for version := int16(0); version <= 5; version++ {
		c := kafkatest.Dial(t, p.Addr())
		c.Send(9, versioned(kmsg.NewPtrApiVersionsRequest(), version))
		answer := kmsg.NewPtrApiVersionsResponse()
		answer.Version = version
		c.Expect(9, answer)
		if got := len(answer.ApiKeys); got != len(want) {
			t.Errorf("v%d: got %d keys, want %d", version, got, len(want))
		}
		for _, k := range answer.ApiKeys {
			if got := [2]int16{k.MinVersion, k.MaxVersion}; got != want[k.ApiKey] {
				t.Errorf("v%d key %d: got %v, want %v", version, k.ApiKey, got, want[k.ApiKey])
			}
		}
	}
}

func TestApiVersionsTooNewIsAnsweredInVersion0(t *testing.T) {
	for name, tc := range map[string]struct {
		version int16
		login   bool // the client is to log in at the proxy
	}{
		"by the proxy": {99, false}, "relayed from the broker": {5, false},
		"by the proxy, to who logs in": {99, true}, "relayed, to who logs in": {5, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := proxy.Config{}
			if tc.login {
				cfg = gateway(localLogin(t, 0))
			}
			p := scripted(t, cfg, func(c *kafkatest.Conn, r kafkatest.Request) bool {
				answer := kmsg.NewPtrApiVersionsResponse()
				answer.ErrorCode = kerr.UnsupportedVersion.Code
				k := kmsg.NewApiVersionsResponseApiKey()
				k.ApiKey, k.MaxVersion = 18, 4
				answer.ApiKeys = append(answer.ApiKeys, k)
				_, _ = c.Write(kafkatest.AnswerFrame(r, answer.AppendTo(nil)))
				return true
			})
			address := p.Addr()
			if tc.login {
				address = p.gate()
			}
			c := kafkatest.Dial(t, address)
			c.Send(1, versioned(kmsg.NewPtrApiVersionsRequest(), tc.version))
			answer := kmsg.NewPtrApiVersionsResponse() // version 0
			c.Expect(1, answer)
			if got, want := answer.ErrorCode, kerr.UnsupportedVersion.Code; got != want {
				t.Errorf("error code: got %d, want %d", got, want)
			}
			if len(answer.ApiKeys) != 1 || answer.ApiKeys[0].ApiKey != 18 {
				t.Errorf("got keys %v, want ApiVersions alone", answer.ApiKeys)
			}
		})
	}
}

func TestMaxPendingRequestsPausesReading(t *testing.T) {
	const bound, rounds = 4, 5
	early := make(chan kafkatest.Request, bound*rounds)
	var waiting []kafkatest.Request
	p := scripted(t, proxy.Config{MaxPendingRequests: bound}, func(c *kafkatest.Conn, r kafkatest.Request) bool {
		if waiting = append(waiting, r); len(waiting) < bound {
			return true
		}
		// Nothing is answered yet, so nothing more may come.
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if r, ok := c.Next(); ok {
			early <- r
		}
		_ = c.SetReadDeadline(time.Time{})
		for _, r := range waiting {
			echo(c, r)
		}
		waiting = nil
		return true
	})
	c := kafkatest.Dial(t, p.Addr())
	for i := range int32(bound * rounds) {
		c.Send(i, versioned(kmsg.NewPtrListGroupsRequest(), 0))
	}
	for i := range int32(bound * rounds) {
		if got := c.NextID(); got != i {
			t.Fatalf("got answer to %d, want %d", got, i)
		}
	}
	if len(early) > 0 {
		t.Errorf("a request arrived while %d were unanswered", bound)
	}
}
