package proxy

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/offsetproxy/offsetproxy/fence"
	ps "github.com/offsetproxy/offsetproxy/partitionstate"
	"github.com/offsetproxy/offsetproxy/proxy/prober"
)

const (
	// sweepEvery is how often lanes on which nothing goes on are put away.
	sweepEvery = time.Second
	// startEvery is how often a proxy that has just started looks for brokers.
	startEvery = 20 * time.Millisecond
	// sameViewRounds is how often a batch may be refused on a view that the
	// next reading confirms.
	sameViewRounds = 4
	// answerGrace is how much longer than the request's own timeout a stamped
	// batch's answer is waited for; Config.AnswerMax bounds both together.
	answerGrace = 5 * time.Second
)

// fairness is the same in all proxies: one with longer turns would get more than
// its share.
var fairness = fence.Fairness{ContendedFor: time.Second, Turn: 20 * time.Millisecond, TurnAlone: 250 * time.Millisecond, TellWithin: 100 * time.Millisecond}

// brokerSet is what the fencing needs of the cluster.
type brokerSet interface {
	// nodeIDs lists the brokers, in an order in which they may be asked.
	nodeIDs() []int32
	// dialNode opens a connection to a broker.
	dialNode(ctx context.Context, node int32) (net.Conn, error)
}

// fencing is the fenced side of a Proxy: the rules, the lanes of the
// partitions in use and the states of idle ones, and the control connections.
type fencing struct {
	brokers brokerSet
	pool    *prober.Pool
	rules   *currentRules
	// retake, if not nil, is called before each partition's rule is found, with the
	// book to find it in, and gives the one that is used. It is for tests.
	retake func(*ruleBook) *ruleBook
	// carry, if not nil, gives what takes a connection's pieces upstream. It is for
	// tests.
	carry  func(*conn) carrier
	topics *topicBook
	warned *onceByTopic // of observed topics that could not be fenced
	// forewarned is what an observed topic's batches would be refused for, with its name.
	forewarned *onceByTopic
	refused    *onceByTopic // of topics that are not served
	denied     *onceByTopic // of topics that may not be read
	weak       *onceByTopic // of topics that can lose acknowledged records
	logger     *slog.Logger
	metrics    *metrics
	tracing    *Tracing // nil: nothing is traced

	fenceID       int64
	kinds         *kindBook
	asserted      BrokerLimits
	clockSkew     time.Duration
	maxPartitions int
	// inspecting holds one token for each large batch that is being read.
	inspecting chan struct{}

	// core is the fence's configuration, replaced as a whole when the brokers'
	// limits turn out to be others; each event of a partition is decided by it.
	core atomic.Pointer[fence.Config]

	// stirred has capacity 1 and is never closed; see stir.
	stirred  chan struct{}
	readings *readingQueues
	// toldLeader is the broker that was asked last who leads a partition, and knew.
	toldLeader atomic.Int32

	// mu is taken before a lane's lock, never while one is held.
	mu     sync.Mutex
	lanes  map[ps.Key]*lane
	idle   *ps.Cache
	limits map[int32]BrokerLimits // by node id
	// rested are those of idle that are shown.
	rested *restingBook
	events fenceEvents
}

func newFencing(cfg *Config, rules *currentRules, brokers brokerSet, metrics *metrics) (*fencing, error) {
	f := &fencing{
		brokers:  brokers,
		rules:    rules,
		logger:   cfg.Logger,
		metrics:  metrics,
		tracing:  cfg.Tracing,
		fenceID:  cfg.FenceID,
		asserted: cfg.AssertedLimits(), clockSkew: cfg.ClockSkew,
		inspecting:    make(chan struct{}, maxInspecting()),
		maxPartitions: cfg.MaxProducePartitions,
		lanes:         map[ps.Key]*lane{},
		stirred:       make(chan struct{}, 1),
		limits:        map[int32]BrokerLimits{},
		rested:        newRestingBook(),
	}
	f.readings = newReadingQueues(cfg.MaxReadings, cfg.ReadingTimeout, func() { metrics.limit(limitReadings) }, metrics.readingEnded)
	f.topics = newTopicBook(f.loadTopic, cfg.MaxTopics, f.readings.start, &metrics.unserved, func() { metrics.limit(limitTopics) })
	var err error
	f.topics.weak = &metrics.weak
	if f.weak, err = newOnceByTopic(cfg.MaxTopics); err != nil {
		return nil, err
	}
	if f.denied, err = newOnceByTopic(cfg.MaxTopics); err != nil {
		return nil, err
	}
	if f.refused, err = newOnceByTopic(cfg.MaxTopics); err != nil {
		return nil, err
	}
	if f.warned, err = newOnceByTopic(cfg.MaxTopics); err != nil {
		return nil, err
	}
	if f.forewarned, err = newOnceByTopic(cfg.MaxTopics); err != nil {
		return nil, err
	}
	if f.idle, err = ps.NewCache(cfg.IdleViews, cfg.IdleProducers, func(_ ps.Key, producers int) { metrics.viewEvicted(producers) }); err != nil {
		return nil, err
	}
	core := fence.Config{
		ViewMaxAge: cfg.ViewMaxAge, AdmissionWait: cfg.AdmissionWait, AnswerMax: cfg.AnswerMax,
		SameViewRounds: sameViewRounds, MaxUnsettled: cfg.MaxUnknown, Fairness: fairness, Unsafe: cfg.Unsafe,
		ProducerKeep: cfg.ProducerKeep, MaxProducers: cfg.MaxProducers,
	}
	takeAway(&core)
	source := prober.AsProbed
	switch cfg.BrokerKind {
	case ApacheKafka:
		source = prober.Describe
	case EmbeddedKfake:
		source = prober.TailBatch
	}
	f.core.Store(&core)
	f.pool = prober.New(prober.Config{
		Dial: brokers.dialNode, Logger: cfg.Logger, FenceID: cfg.FenceID, StateFrom: source,
		MaxDecompressed: cfg.MaxDecompressedBytes, Names: rules.headers,
		Epochs: cfg.IdleViews, Clock: func() time.Duration { return time.Duration(instant()) }, WallClock: wall,
		RequestTimeout: cfg.ControlTimeout, MaxFrame: cfg.MaxControlBytes, ReadBytes: cfg.MaxReadBackBytes,
		MaxInFlight: cfg.MaxReadings,
		// Besides the readings, each connection may look up a topic's name.
		MaxWaiting: cfg.MaxConnections + 4*cfg.MaxReadings,
	})
	f.kinds = newKindBook(cfg, f.pool, brokers, f.readings.start, metrics)
	return f, nil
}

// run keeps the fencing going until ctx ends; all connections must be gone by
// then. It returns when no goroutine of it is left.
func (f *fencing) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { _ = f.pool.Run(ctx) })
	ticks := time.NewTicker(startEvery) // until brokers are known
	defer ticks.Stop()
	for starting := true; ctx.Err() == nil; {
		if f.resting() {
			ticks.Stop()
			select {
			case <-f.stirred:
				ticks.Reset(startEvery)
				starting = true
			case <-ctx.Done():
				continue
			}
		}
		select {
		case <-ticks.C:
			if starting && len(f.brokers.nodeIDs()) > 0 {
				starting = false
				ticks.Reset(sweepEvery)
			}
			f.tend()
			f.sweep()
		case <-ctx.Done():
		}
	}
	f.readings.stop()
	f.mu.Lock()
	for _, l := range f.lanes {
		l.mu.Lock()
		l.closeLocked()
		l.mu.Unlock()
	}
	f.mu.Unlock()
	f.readings.wait()
	wg.Wait()
}

// resting reports whether there is nothing to look after until something stirs.
func (f *fencing) resting() bool {
	if f.rules.inForce().most > ModeOff {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.lanes) == 0
}

// stir has run look after things again: rules or lanes may have come.
func (f *fencing) stir() {
	select {
	case f.stirred <- struct{}{}:
	default:
	}
}

// lane gives the lane of a partition, with one more user.
func (f *fencing) lane(key ps.Key) *lane {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, ok := f.lanes[key]
	if !ok {
		l = &lane{
			f: f, key: key, topic: prober.Topic{Name: key.Topic, ID: key.ID},
			part: fence.New(f.core.Load(), f.idle.Take(key)),
		}
		l.counts = f.metrics.topics.of(key.Topic)
		l.producers = l.part.State().Producers()
		c := l.part.State().Counts()
		l.attempts, l.lostRaces, l.shown = c.Attempts, c.LostRaces, c.All()
		if f.lanes[key] = l; len(f.lanes) == 1 {
			f.stir()
		}
	}
	l.users.Add(1)
	return l
}

// sweepStep is how many lanes are looked at before others get their turn: a
// proxy may have more of them than a batch should wait for.
const sweepStep = 1024

// sweep puts away the lanes on which nothing goes on.
func (f *fencing) sweep() {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := 0
	for key, l := range f.lanes {
		if l.users.Load() == 0 && l.putAway() {
			delete(f.lanes, key)
			f.rested.Add(key, restingOf(l.part.State()))
			f.idle.Put(instant(), key, l.part.State())
			l.countProducersLocked() // nobody has it any more
		}
		if seen++; seen%sweepStep == 0 {
			f.mu.Unlock()
			f.mu.Lock()
		}
	}
}

// learnLimits takes a broker's limits into account, in place of what it said
// before: of all brokers', the shortest expiry and the longest times count,
// since any broker may come to lead.
func (f *fencing) learnLimits(node int32, l BrokerLimits) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits[node] = l
	for _, each := range f.limits {
		l = l.worst(each)
	}
	c := *f.core.Load()
	l.apply(&c, f.clockSkew)
	if c != *f.core.Load() {
		f.core.Store(&c)
	}
}

// alarm tells the operator that a condition of the fence does not hold.
func (f *fencing) alarm(key ps.Key, e *fence.Effect) {
	f.metrics.alarm(e.Alarm)
	f.events.alarm(key, e.Alarm, e.Offset)
	f.logger.Error("a condition of the fence does not hold: check that only proxies with the same rules and fence id write this topic",
		"alarm", e.Alarm.String(), "topic", key.Topic, "partition", key.Partition, "offset", int64(e.Offset))
}
