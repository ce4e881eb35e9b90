package e2e

import (
	"testing"
	"time"
)

// TestTopicThatCompresses stores other bytes than were sent.
func TestTopicThatCompresses(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	besideOthers(t)
	const topic = "compresses"
	p := startProxy(t, "--require", topic)
	createConfiguredTopic(t, adminAt(t, p.bootstrap), topic, 1, map[string]*string{"compression.type": new("gzip")})
	conn := dialLeader(t, p, topic)
	var values []string
	for codec, name := range codecs {
		next := int64(len(values))
		batch := compressedBatch(int16(codec), identified(conditional(next, name), name))
		conn.mustTell(t, topic, batch, wonAt(next))
		conn.mustTell(t, topic, batch, wonAt(next)) // its own, again
		conn.mustTell(t, topic, compressedBatch(int16(codec), identified(conditional(next, name), "another")), takenAt(next, next+1))
		values = append(values, name)
	}
	// A proxy without memory of it finds it in the log.
	other := dialLeader(t, startProxy(t, "--require", topic), topic)
	other.mustTell(t, topic, encodeBatch(identified(conditional(0, "none"), "none")), wonAt(0))
	other.mustTell(t, topic, encodeBatch(identified(conditional(0, "none"), "another")), takenAt(0, int64(len(values))))
	mustHold(t, topic, values...)
}

// TestRaceOnATopicThatCompresses: what is read back is compared after it was
// unpacked, whatever codec its writer used.
func TestRaceOnATopicThatCompresses(t *testing.T) {
	requireKafka(t)
	needsFence(t)
	besideOthers(t)
	places := int64(150)
	if longRuns {
		places = 10_000
	}
	c := newConfiguredContest(t, "race-compresses", places, map[string]*string{"compression.type": new("gzip")})
	c.batch = func(a attempt, record rawRecord) []byte {
		return compressedBatch(int16(a.writer%len(codecs)), record)
	}
	c.writers = len(codecs)
	c.run(t, 2*time.Minute)
	c.checkPlaces(t)
}
