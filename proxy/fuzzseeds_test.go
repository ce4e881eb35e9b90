package proxy

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fuzzSeed is one input of FuzzClientConnection.
type fuzzSeed struct {
	script, broker, own []byte
	doNotRead           bool
}

// plan is how a client ends, and its steps before that.
func plan(end byte, steps ...[]byte) []byte { return append([]byte{end}, bytes.Join(steps, nil)...) }

func rawStep(b string) []byte { return append([]byte{stepRaw, byte(len(b))}, b...) }

func keyIndex8(key kmsg.Key) byte { return byte(slices.Index(fuzzKeys[:], key)) }

func requestStep(key kmsg.Key, version, how byte, lies ...byte) []byte {
	return append([]byte{stepRequest, keyIndex8(key), version, how}, lies...)
}

func pipelined(key kmsg.Key, version, n byte) []byte {
	return []byte{stepPipelined, keyIndex8(key), version, n - 1}
}

// produceStep sends one partition's batch; acks is 0 for all, 1 for none.
func produceStep(version, acks, topic, partition, kind, how, expected byte, lies ...byte) []byte {
	return append([]byte{stepProduce, 0, version, acks, 0, topic, partition + 1, kind, how, expected}, lies...)
}

// halfFrame announces 256 MiB more than it sends, or as much as it sends, of a request
// that the proxy has to have whole or of one that passes.
func halfFrame(size int, announced, whole bool) []byte {
	how := byte(0)
	if announced {
		how |= 1
	}
	if whole {
		how |= 2
	}
	return append(binary.BigEndian.AppendUint16([]byte{stepHalfFrame}, uint16(size>>2)), how)
}

// namesStep asks for topics, and for so many that do not exist and have long names.
func namesStep(long byte) []byte { return []byte{stepNames, 9, long, 0} }

var waitStep = []byte{stepWait}

// answerPlans are plans in which one answer is distorted in each way, after some
// that are not; turn gives the details.
func answerPlans(before, turn int) (plans [][]byte) {
	details := [][]byte{{0, 1, 10, 0, 9}, {1, 3, 2, 0, 4, 4, 0, 20}, {2, 3, 9, 0, 8}, {5, 0xff, 0, 0x30}}
	for how := range byte(16) {
		detail := details[(before+int(how)+turn)%len(details)]
		plans = append(plans, slices.Concat(make([]byte, before), []byte{how}, detail))
	}
	return plans
}

// fuzzSeeds reach each part of what the proxy does with a connection.
func fuzzSeeds() (seeds []fuzzSeed) {
	random := rand.New(rand.NewPCG(1, 2))
	some := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	add := func(script []byte, broker, own []byte) {
		seeds = append(seeds, fuzzSeed{script, broker, own, len(seeds)%5 == 4})
	}
	// No frames at all.
	for _, raw := range []string{"", "\x16\x03\x01\x02\x00\x01\x00", "GET / HTTP/1.1\r\n\r\n", "\xff\xff\xff\xff", "\x00\x00\x00\x00",
		"\x7f\xff\xff\xff", "\x00\x00\x00\x07\x00\x00\x00", "\x00\x00\x00\x0a\x00\x03\x00\x01\x00\x00\x00\x01\x7f\xff",
		"\x00\x00\x00\x0d\x00\x03\x00\x09\x00\x00\x00\x01\xff\xff\xff\xff\x05"} {
		for end := range byte(ends) {
			add(plan(end, rawStep(raw)), nil, nil)
		}
	}
	// Each api in each version, as it should be and with lies.
	for _, key := range fuzzKeys {
		for how := range byte(3) {
			var steps [][]byte
			for version := range byte(18) {
				steps = append(steps, requestStep(key, version, how, some(5*int(how))...), waitStep)
			}
			add(plan(byte(len(seeds)%ends), steps...), nil, nil)
		}
		for version := byte(0); version < 18; version += 3 {
			add(plan(endHalfClosed, requestStep(key, version, 4, some(1)...)), nil, nil)
			add(plan(endOpen, requestStep(key, version, 8, some(2)...)), nil, nil)
			add(plan(endHalfClosed, []byte{stepFramed, keyIndex8(key), version, 30}, some(30)), nil, nil)
		}
		for _, broker := range answerPlans(1, int(key)) {
			version := byte(random.IntN(14))
			add(plan(endHalfClosed, requestStep(kmsg.ApiVersions, 3, 0), requestStep(key, version, 0), waitStep, requestStep(key, version, 0)), broker, nil)
		}
	}
	// Batches of each kind, for each topic.
	for topic := range byte(len(fuzzTopics)) {
		for kind := range byte(8) {
			for how := range byte(8) {
				version := byte(random.IntN(14))
				add(plan(endHalfClosed, namesStep(0),
					produceStep(version, 0, topic, 0, kind|byte(random.IntN(4))<<6, how, 0), waitStep,
					produceStep(version, 2, topic, 0, kind|0x10, how, 1), produceStep(version, 1, topic, 1, kind, how, 0), waitStep,
					produceStep(version, 0, topic, 0, kind|0x20, how|0x10, 2, some(4)...),
					produceStep(version, 0, topic, 0, kind, how, 0)), nil, nil)
			}
		}
		for version := range byte(14) {
			add(plan(endHalfClosed, produceStep(version, 0, topic, 0, 0x30, 0x20, 0, some(8)...), produceStep(version, 0, topic, 0, 0, 0x38, 0, some(12)...)), nil, nil)
		}
		for codec := range byte(3) {
			for version := byte(0); version < 11; version += 3 {
				add(plan(endHalfClosed, []byte{stepBomb, version, codec, topic}), nil, nil)
			}
		}
	}
	// A broker that lies to the client and to the proxy, at different times.
	for before := range 20 {
		for _, lies := range answerPlans(before, before/4) {
			version := byte(3 + random.IntN(11))
			script := plan(byte(len(seeds)%ends), namesStep(0), produceStep(version, 0, 0, 0, 0, 0, 0), produceStep(version, 0, 0, 1, 1, 1, 0), waitStep,
				produceStep(version, 0, 0, 0, 2, 0, 0), produceStep(version, 0, 3, 0, 1, 0, 0), requestStep(kmsg.Fetch, 4, 0), produceStep(version, 0, 0, 0, 0, 0, 0))
			add(script, nil, lies)
			if before < 5 {
				add(script, lies, nil)
				add(script, lies, some(8))
			}
		}
	}
	// Several partitions in one request, some of which are held, with each acks; and
	// offsets so old that records must be read from the log.
	for version := range byte(14) {
		for acks := range byte(3) {
			several := func(topics ...byte) []byte {
				b := []byte{stepProduce, 0, version, acks, 3}
				for i, topic := range topics {
					b = append(b, topic, 1, byte(i)&3, 0, byte(i))
				}
				return b
			}
			add(plan(endHalfClosed, namesStep(0), several(0, 1, 2), waitStep, several(1, 0, 3), several(2, 2, 0), waitStep, several(0, 0, 0), several(4, 0, 5),
				several(1, 1, 2), []byte{stepProduce, 0, version, acks, 12, 0, 1, 0, 0, 1, 3}), nil, nil)
		}
		var steps [][]byte
		for i := range byte(6) {
			steps = append(steps, produceStep(version, 0, 0, 0, 0x30, 0, 4*i))
		}
		for i := range byte(12) {
			steps = append(steps, produceStep(version, 0, 0, 0, 1, 0, i))
		}
		add(plan(endHalfClosed, steps...), nil, nil)
		add(plan(endClosed, steps...), nil, nil)
	}
	// Requests as long as they may be, that pass as they come or not, in part or whole.
	for _, whole := range []bool{false, true} {
		for end := range byte(ends) {
			for _, size := range []int{200 << 10, 255 << 10} {
				add(plan(end, requestStep(kmsg.ListGroups, 0, 0), halfFrame(size, false, whole), waitStep, halfFrame(size, false, whole), halfFrame(70<<10, true, whole), waitStep), nil, nil)
				add(plan(end, halfFrame(size, false, whole), requestStep(kmsg.Metadata, 9, 0), waitStep), []byte{0, 5}, nil)
			}
		}
	}
	for _, twin := range fuzzTwins {
		seeds = append(seeds, twin.seed)
	}
	return seeds
}

// fuzzTwins are inputs that come up against one limit each, and a configuration
// without it.
var fuzzTwins = []struct {
	name  string
	seed  fuzzSeed
	unbar func(c *Config)
}{
	{"max_frame_bytes", fuzzSeed{script: plan(endOpen, halfFrame(255<<10, true, true), halfFrame(255<<10, true, true), waitStep)},
		func(c *Config) { c.MaxFrameBytes = 1 << 30 }},
	{"max_pending_requests", fuzzSeed{script: plan(endHalfClosed, pipelined(kmsg.ListGroups, 0, 60), waitStep), broker: bytes.Repeat([]byte{7}, 60)},
		func(c *Config) { c.MaxPendingRequests = 1 << 20 }},
	{"max_decompressed_bytes", fuzzSeed{script: plan(endHalfClosed, []byte{stepBomb, 6, 0, 0}, []byte{stepBomb, 6, 0, 0}, []byte{stepBomb, 6, 0, 0}, []byte{stepBomb, 6, 0, 0})},
		func(c *Config) { c.MaxDecompressedBytes = 1 << 30 }},
	{"max_rewritten_bytes", fuzzSeed{script: plan(endHalfClosed, namesStep(200))},
		func(c *Config) { c.MaxRewrittenBytes = 1 << 30 }},
	{"max_held_bytes", fuzzSeed{
		script: plan(endHalfClosed, requestStep(kmsg.ListGroups, 0, 0), produceStep(9, 0, 0, 0, 0, 0, 0), waitStep, pipelined(kmsg.ListGroups, 0, 12), waitStep),
		// The Produce is refused for its sequence, and where the log ends is not told.
		broker: slices.Concat([]byte{0, 0, 1, 0, 0, 0, 0, 15, 45}, bytes.Repeat([]byte{10, 1, 0, 0}, 12)),
		own:    slices.Concat(make([]byte, 16), bytes.Repeat([]byte{7}, 20))},
		func(c *Config) { c.MaxHeldBytes = 1 << 30 }},
	{"idle_timeout", fuzzSeed{script: plan(endOpen, requestStep(kmsg.ListGroups, 0, 0))},
		func(c *Config) { c.IdleTimeout = 0 }},
	{"handshake_timeout", fuzzSeed{script: plan(endOpen, rawStep("\x00\x00"))},
		func(c *Config) { c.HandshakeTimeout = forEver }},
}
