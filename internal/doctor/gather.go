package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/internal/config"
	"github.com/offsetproxy/offsetproxy/internal/resources"
	"github.com/offsetproxy/offsetproxy/internal/tlsfiles"
	"github.com/offsetproxy/offsetproxy/proxy"
)

// Config says what to look at.
type Config struct {
	// Settings are what a proxy would run with. Required.
	Settings *config.Settings
	// Word is what the operator says of what cannot be seen.
	Word Word
	// Proxies are the admin addresses of running proxies, as URL or host:port.
	Proxies []string
	// StepTimeout bounds each question to somebody; default 5 s. The context bounds
	// all of them together.
	StepTimeout time.Duration
	// MaxTopics bounds the topics under a rule of which more than that they exist is
	// asked; default 2,000.
	MaxTopics int
}

const clientID = "offsetproxy-doctor"

// maxBrokers bounds the brokers of a cluster, each of which is asked: what names more
// is not believed to be Kafka.
const maxBrokers = 10_000

// gatherer asks.
type gatherer struct {
	Config
	facts  *Facts
	client *kgo.Client

	mu      sync.Mutex
	expires map[string]time.Time // of the certificates at addresses that were dialled
}

// Gather asks for everything that Judge judges, until ctx ends: what has not been
// answered by then counts as failed. It starts goroutines and has ended all of them
// when it returns.
func Gather(ctx context.Context, cfg Config) *Facts {
	if cfg.StepTimeout == 0 {
		cfg.StepTimeout = 5 * time.Second
	}
	if cfg.MaxTopics == 0 {
		cfg.MaxTopics = 2000
	}
	g := &gatherer{Config: cfg, facts: &Facts{At: time.Now(), Settings: cfg.Settings, Word: cfg.Word, Given: resources.Read()}, expires: map[string]time.Time{}}
	dial := g.files()
	if cfg.Settings.Proxy.Credentials.Mechanism != proxy.NoLogin {
		_, err := cfg.Settings.Password.Read()
		g.facts.PasswordFailed = failureOf(err)
	}
	var all sync.WaitGroup
	all.Go(func() { g.proxies(ctx) })
	g.cluster(ctx, dial)
	g.addresses(ctx)
	all.Wait()
	return g.facts
}

// dialFunc opens a connection to a broker.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// files reads the TLS files, and gives how brokers are dialled.
func (g *gatherer) files() dialFunc {
	s := g.Settings
	dial := s.Proxy.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	if s.UpstreamTLS != nil {
		store, err := tlsfiles.Load(*s.UpstreamTLS)
		g.facts.Files = append(g.facts.Files, filesOf("upstream", store, err))
		if err == nil {
			dial = (&tlsfiles.Dialer{Store: store, Dial: dial}).DialContext
		} else {
			dial = func(context.Context, string, string) (net.Conn, error) { return nil, err }
		}
	}
	for _, l := range s.Proxy.AllListeners() {
		files, secured := s.ListenerTLS[l.Name]
		if !secured {
			continue
		}
		store, err := tlsfiles.Load(files)
		of := filesOf("listener "+l.Name, store, err)
		if err == nil {
			for _, host := range l.CertificateHosts() {
				if store.Covers(host) != nil {
					of.Uncovered = append(of.Uncovered, host)
				}
			}
		}
		g.facts.Files = append(g.facts.Files, of)
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, min(s.Proxy.DialTimeout, g.StepTimeout))
		defer cancel()
		conn, err := dial(ctx, network, address)
		if secured, is := conn.(*tls.Conn); is && err == nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			for _, cert := range secured.ConnectionState().PeerCertificates {
				if known := g.expires[address]; known.IsZero() || cert.NotAfter.Before(known) {
					g.expires[address] = cert.NotAfter
				}
			}
		}
		return conn, err
	}
}

func filesOf(side string, store *tlsfiles.Store, err error) TLSFiles {
	of := TLSFiles{Side: side, Failed: failureOf(err)}
	if err == nil {
		of.Expires = store.NotAfter()
	}
	return of
}

// failureOf tells of an error; nil is none.
func failureOf(err error) Failure {
	if err == nil {
		return Failure{}
	}
	var code *kerr.Error
	if errors.As(err, &code) {
		return Failure{code.Code, err.Error()}
	}
	if errors.Is(err, io.EOF) {
		return Failure{Text: "the connection was closed without an answer, as by brokers that expect TLS, or another login (" + shorten(err.Error()) + ")"}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return Failure{Text: "no answer in time"}
	}
	return Failure{Text: err.Error()}
}

// refused is the failure that a broker's error code is; 0 is none.
func refused(code int16) Failure { return failureOf(kerr.ErrorForCode(code)) }

// open makes a client for addresses, logged in as the proxy.
func (g *gatherer) open(dial dialFunc, addresses ...string) (*kgo.Client, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(addresses...), kgo.ClientID(clientID), kgo.Dialer(dial),
		kgo.RequestRetries(1), kgo.RetryTimeout(g.StepTimeout), kgo.DisableClientMetrics(),
		// As the proxy's own; a client has no larger bound, and one of what it fetches below.
		kgo.BrokerMaxReadBytes(int32(min(g.Settings.Proxy.MaxControlBytes, 1<<30))), kgo.FetchMaxBytes(1 << 20),
	}
	if login := g.Settings.Proxy.Credentials.SASL(); login != nil {
		opts = append(opts, kgo.SASL(login))
	}
	return kgo.NewClient(opts...)
}

// step bounds one question.
func (g *gatherer) step(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, g.StepTimeout)
}

// cluster asks the brokers.
func (g *gatherer) cluster(ctx context.Context, dial dialFunc) {
	answering := g.seeds(ctx, dial)
	if len(answering) == 0 {
		return
	}
	client, err := g.open(dial, answering...)
	if err != nil {
		g.facts.TopicsFailed = failureOf(err)
		return
	}
	defer client.Close()
	g.client = client
	if !g.metadata(ctx) {
		return
	}
	var all sync.WaitGroup
	for i := range g.facts.Brokers {
		all.Go(func() { g.broker(ctx, dial, &g.facts.Brokers[i]) })
	}
	all.Go(func() { g.clock(ctx) })
	all.Go(func() { g.acls(ctx) })
	all.Go(func() { g.topics(ctx) })
	all.Wait()
}

// seeds asks each bootstrap address for what it speaks, and gives those that answer.
func (g *gatherer) seeds(ctx context.Context, dial dialFunc) []string {
	addresses := g.Settings.Proxy.Bootstrap
	g.facts.Seeds = make([]Seed, len(addresses))
	var all sync.WaitGroup
	for i, address := range addresses {
		all.Go(func() { g.facts.Seeds[i] = Seed{address, g.seed(ctx, dial, address)} })
	}
	all.Wait()
	var answering []string
	for _, s := range g.facts.Seeds {
		if !s.Failed.Failed() {
			answering = append(answering, s.Address)
		}
	}
	return answering
}

func (g *gatherer) seed(ctx context.Context, dial dialFunc, address string) Failure {
	ctx, cancel := g.step(ctx)
	defer cancel()
	// A client asks again after any failure to connect; the first one tells more than
	// that no time is left.
	var mu sync.Mutex
	var first error
	client, err := g.open(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		mu.Lock()
		defer mu.Unlock()
		if first == nil {
			first = err
		}
		return conn, err
	}, address)
	if err != nil {
		return failureOf(err)
	}
	defer client.Close()
	// What needs a login, since a broker tells anybody what it speaks.
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{} // none, rather than all
	_, err = client.SeedBrokers()[0].Request(ctx, request)
	mu.Lock()
	defer mu.Unlock()
	if err != nil && first != nil {
		err = first
	}
	return failureOf(err)
}

// metadata learns brokers and topics; false: nobody has answered.
func (g *gatherer) metadata(ctx context.Context) bool {
	ctx, cancel := g.step(ctx)
	defer cancel()
	request := kmsg.NewPtrMetadataRequest()
	request.AllowAutoTopicCreation = false
	request.IncludeTopicAuthorizedOperations = true
	response, err := request.RequestWith(ctx, g.client)
	if err != nil {
		g.facts.TopicsFailed = failureOf(err)
		return false
	}
	if n := len(response.Brokers); n > maxBrokers {
		g.facts.TopicsFailed = Failure{Text: fmt.Sprintf("the answer names %d brokers, and no cluster has more than %d", n, maxBrokers)}
		return false
	}
	if response.ClusterID != nil {
		g.facts.Cluster = *response.ClusterID
	}
	for _, b := range response.Brokers {
		g.facts.Brokers = append(g.facts.Brokers, Broker{Node: b.NodeID, Address: net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))})
	}
	known := map[string]bool{}
	for i := range response.Topics {
		if t := &response.Topics[i]; t.Topic != nil {
			g.facts.Topics = append(g.facts.Topics, topicOf(t))
			known[*t.Topic] = true
		}
	}
	// Names that are not among all are asked for: a broker tells then whether there
	// is none, or who asks may not see it.
	request.Topics = nil
	for _, name := range append(NamedTopics(&g.Settings.Proxy), g.Settings.Proxy.ProbeTopic) {
		if !known[name] {
			known[name] = true
			one := kmsg.NewMetadataRequestTopic()
			one.Topic = kmsg.StringPtr(name)
			request.Topics = append(request.Topics, one)
		}
	}
	if len(request.Topics) == 0 {
		return true
	}
	response, err = request.RequestWith(ctx, g.client)
	if err != nil {
		g.facts.TopicsFailed = failureOf(err)
		return true
	}
	for i := range response.Topics {
		if t := &response.Topics[i]; t.Topic != nil {
			g.facts.Topics = append(g.facts.Topics, topicOf(t))
		}
	}
	return true
}

func topicOf(t *kmsg.MetadataResponseTopic) Topic {
	topic := Topic{Name: *t.Topic, Internal: t.IsInternal, Rights: rightsOf(t.AuthorizedOperations), Failed: refused(t.ErrorCode)}
	for _, p := range t.Partitions {
		topic.Partitions = append(topic.Partitions, Partition{p.Partition, p.Leader, p.Replicas, p.ISR})
	}
	return topic
}

// noRights is what brokers say that do not tell.
const noRights = -1 << 31

func rightsOf(bits int32) Rights { return Rights{Known: bits != noRights, Bits: bits} }

// proxies asks running proxies.
func (g *gatherer) proxies(ctx context.Context) {
	g.facts.Proxies = make([]Proxy, len(g.Config.Proxies))
	var all sync.WaitGroup
	transport := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: g.StepTimeout}
	for i, address := range g.Config.Proxies {
		all.Go(func() { g.facts.Proxies[i] = askProxy(ctx, client, urlOf(address)) })
	}
	all.Wait()
}

// urlOf makes a URL of host:port.
func urlOf(address string) string {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	return strings.TrimSuffix(address, "/")
}

// addresses resolves what clients would be told, and what brokers advertise.
func (g *gatherer) addresses(ctx context.Context) {
	ctx, cancel := g.step(ctx)
	defer cancel()
	for _, l := range g.Settings.Proxy.AllListeners() {
		g.facts.Addresses = append(g.facts.Addresses, told(&l, g.facts.Brokers)...)
	}
	var all sync.WaitGroup
	for i := range g.facts.Brokers {
		b := &g.facts.Brokers[i]
		if host, _, err := net.SplitHostPort(b.Address); err == nil {
			all.Go(func() { b.IPs, _ = net.DefaultResolver.LookupHost(ctx, host) })
		}
	}
	for i := range g.facts.Addresses {
		a := &g.facts.Addresses[i]
		all.Go(func() {
			ips, err := net.DefaultResolver.LookupHost(ctx, a.Host)
			a.IPs, a.Failed = ips, failureOf(err)
		})
	}
	all.Wait()
}

// told lists the hosts that clients of a listener would be told.
func told(l *proxy.Listener, brokers []Broker) []Address {
	_, own, _ := net.SplitHostPort(l.Listen)
	listen, _ := strconv.Atoi(own)
	if n := l.ServerNames; n != nil {
		port := listen
		if n.Port != 0 {
			port = n.Port
		}
		all := []Address{{Listener: l.Name, Host: n.Bootstrap, Nodes: map[int32]int{bootstrapNode: port}}}
		for _, b := range brokers {
			all = append(all, Address{Listener: l.Name, Host: l.Host(b.Node), Nodes: map[int32]int{b.Node: port}})
		}
		return all
	}
	a := Address{Listener: l.Name, Host: l.AdvertisedHost, Nodes: map[int32]int{bootstrapNode: listen}}
	for _, b := range brokers {
		if port, served := l.BrokerPort(b.Node); served {
			a.Nodes[b.Node] = port
		}
	}
	return []Address{a}
}

// errSilent says that a broker has answered, and not what it was asked.
var errSilent = fmt.Errorf("the answer is not about what was asked")
