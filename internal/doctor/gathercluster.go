package doctor

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// broker asks one broker for what it speaks and how it is set up, and probes it if
// that is wanted.
func (g *gatherer) broker(ctx context.Context, dial dialFunc, b *Broker) {
	b.Failed = g.versions(ctx, b)
	if b.Failed.Failed() {
		return
	}
	g.mu.Lock()
	b.Expires = g.expires[b.Address]
	g.mu.Unlock()
	configs, failed := g.configs(ctx, kmsg.ConfigResourceTypeBroker, []string{strconv.Itoa(int(b.Node))}, b.Node)
	b.ConfigsFailed = failed
	for _, of := range configs {
		b.Configs, b.ConfigsFailed = of.values, of.failed
	}
	if !g.Word.Probe {
		return
	}
	cfg := g.Settings.Proxy
	cfg.Dial, cfg.ControlTimeout = dial, min(cfg.ControlTimeout, g.StepTimeout)
	cfg.Logger = quiet
	ctx, cancel := context.WithTimeout(ctx, 2*g.StepTimeout)
	defer cancel()
	kind, err := proxy.ProbeKind(ctx, cfg, b.Node, b.Address)
	if err != nil {
		b.KindFailed = failureOf(err)
		return
	}
	b.Kind = &Kind{kind.MarksBy, kind.Marks, kind.Embedded, kind.Refusal}
}

func (g *gatherer) versions(ctx context.Context, b *Broker) Failure {
	ctx, cancel := g.step(ctx)
	defer cancel()
	request := kmsg.NewPtrApiVersionsRequest()
	request.ClientSoftwareName, request.ClientSoftwareVersion = clientID, "0" // brokers refuse empty ones (KIP-511)
	answer, err := g.client.Broker(int(b.Node)).Request(ctx, request)
	if err != nil {
		return failureOf(err)
	}
	versions, ok := answer.(*kmsg.ApiVersionsResponse)
	if !ok {
		return failureOf(errSilent)
	}
	if versions.ErrorCode != 0 {
		return refused(versions.ErrorCode)
	}
	b.Version, b.APIs = kversion.FromApiVersionsResponse(versions).VersionGuess(), map[int16]Versions{}
	for _, k := range versions.ApiKeys {
		b.APIs[k.ApiKey] = Versions{k.MinVersion, k.MaxVersion}
	}
	return Failure{}
}

// settings are those of one resource.
type settings struct {
	values map[string]*string
	failed Failure
}

// anyBroker has any broker be asked.
const anyBroker = -1

// configs reads the settings of brokers or topics, by their names.
func (g *gatherer) configs(ctx context.Context, kind kmsg.ConfigResourceType, names []string, node int32) (map[string]settings, Failure) {
	ctx, cancel := g.step(ctx)
	defer cancel()
	request := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range names {
		resource := kmsg.NewDescribeConfigsRequestResource()
		resource.ResourceType, resource.ResourceName = kind, name
		request.Resources = append(request.Resources, resource)
	}
	answer, err := g.request(ctx, node, request)
	if err != nil {
		return nil, failureOf(err)
	}
	response, ok := answer.(*kmsg.DescribeConfigsResponse)
	if !ok {
		return nil, failureOf(errSilent)
	}
	all := map[string]settings{}
	for _, r := range response.Resources {
		of := settings{failed: refused(r.ErrorCode), values: map[string]*string{}}
		for _, kv := range r.Configs {
			of.values[kv.Name] = kv.Value
		}
		all[r.ResourceName] = of
	}
	return all, Failure{}
}

// request asks a broker, or any.
func (g *gatherer) request(ctx context.Context, node int32, request kmsg.Request) (kmsg.Response, error) {
	if node == anyBroker {
		return g.client.Request(ctx, request)
	}
	return g.client.Broker(int(node)).Request(ctx, request)
}

// clock asks for the controller's clock, and for what the principal may do in the
// cluster.
func (g *gatherer) clock(ctx context.Context) {
	ctx, cancel := g.step(ctx)
	defer cancel()
	cluster := kmsg.NewPtrDescribeClusterRequest()
	cluster.IncludeClusterAuthorizedOperations = true
	if answer, err := cluster.RequestWith(ctx, g.client); err == nil && answer.ErrorCode == 0 {
		g.facts.ClusterRights = rightsOf(answer.ClusterAuthorizedOperations)
	}
	r := &g.facts.Clock
	r.Of, r.Grain = "the controller", time.Millisecond
	request := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = "__cluster_metadata"
	topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	request.Topics = append(request.Topics, topic)
	r.Before = time.Now()
	answer, err := request.RequestWith(ctx, g.client)
	r.After = time.Now()
	switch {
	case err != nil:
		r.Failed = failureOf(err)
	case answer.ErrorCode != 0:
		r.Failed = refused(answer.ErrorCode)
	case len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1:
		r.Failed = failureOf(errSilent)
	default:
		r.Failed = Failure{Text: "the brokers do not show it (Kafka 3.3 or later with KRaft does)"}
		p := answer.Topics[0].Partitions[0]
		for _, v := range p.CurrentVoters {
			// The leader's own is the present (KIP-836).
			if v.ReplicaID == p.LeaderID && v.LastCaughtUpTimestamp > 0 {
				r.Of, r.Said, r.Failed = "the controller (node "+strconv.Itoa(int(p.LeaderID))+")", time.UnixMilli(v.LastCaughtUpTimestamp), Failure{}
			}
		}
	}
}

// acls reads who may do what with topics.
func (g *gatherer) acls(ctx context.Context) {
	ctx, cancel := g.step(ctx)
	defer cancel()
	request := kmsg.NewPtrDescribeACLsRequest()
	request.ResourceType, request.ResourcePatternType = kmsg.ACLResourceTypeTopic, kmsg.ACLResourcePatternTypeAny
	request.Operation, request.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	answer, err := request.RequestWith(ctx, g.client)
	if err == nil {
		err = kerr.ErrorForCode(answer.ErrorCode)
	}
	if err != nil {
		g.facts.ACLsFailed = failureOf(err)
		return
	}
	for _, r := range answer.Resources {
		for _, a := range r.ACLs {
			g.facts.ACLs = append(g.facts.ACLs, ACL{
				Prefixed: r.ResourcePatternType == kmsg.ACLResourcePatternTypePrefixed, Name: r.ResourceName,
				Principal: a.Principal, Host: a.Host, Operation: a.Operation, Deny: a.PermissionType == kmsg.ACLPermissionTypeDeny,
			})
		}
	}
}

// topics asks for more about those under a rule.
func (g *gatherer) topics(ctx context.Context) {
	asked := newRuleTable(g.facts).seen()
	if len(asked) > g.MaxTopics {
		for _, t := range asked[g.MaxTopics:] {
			t.ConfigsFailed = Failure{Text: "not asked for: there are more than " + strconv.Itoa(g.MaxTopics) + " topics under a rule"}
			t.ProducersFailed = t.ConfigsFailed
		}
		asked = asked[:g.MaxTopics]
	}
	const atOnce = 200
	for some := range slices.Chunk(asked, atOnce) {
		var names []string
		for _, t := range some {
			names = append(names, t.Name)
		}
		configs, failed := g.configs(ctx, kmsg.ConfigResourceTypeTopic, names, anyBroker)
		for _, t := range some {
			of, told := configs[t.Name]
			switch {
			case failed.Failed():
				t.ConfigsFailed = failed
			case !told:
				t.ConfigsFailed = failureOf(errSilent)
			default:
				t.Configs, t.ConfigsFailed = of.values, of.failed
			}
		}
		g.producers(ctx, some)
	}
}

// producers asks which producers brokers remember in fenced topics.
func (g *gatherer) producers(ctx context.Context, topics []ruled) {
	ctx, cancel := g.step(ctx)
	defer cancel()
	ask, byName := kadm.TopicsSet{}, map[string]ruled{}
	for _, t := range topics {
		if t.mode < proxy.ModeEnforce {
			continue
		}
		byName[t.Name] = t
		for _, p := range t.Partitions {
			if p.Leader >= 0 {
				ask.Add(t.Name, p.ID)
			}
		}
	}
	if len(ask) == 0 {
		return
	}
	told, err := kadm.NewClient(g.client).DescribeProducers(ctx, ask)
	var shards *kadm.ShardErrors
	if err != nil && !errors.As(err, &shards) {
		for _, t := range byName {
			t.ProducersFailed = failureOf(err)
		}
		return
	}
	for name, t := range byName {
		of, answered := told[name]
		if !answered && len(ask[name]) > 0 {
			t.ProducersFailed = Failure{Text: "its leaders did not answer"}
		}
		for _, p := range of.Partitions {
			if p.Err != nil {
				t.ProducersFailed = failureOf(p.Err)
			}
			for _, producer := range p.ActiveProducers {
				t.Producers = append(t.Producers, Producer{
					Partition: p.Partition, ID: producer.ProducerID, Last: time.UnixMilli(producer.LastTimestamp),
					Open: producer.CurrentTxnStartOffset >= 0,
				})
			}
		}
	}
}

// shorten keeps the first line of a text, for a person.
func shorten(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	const longest = 300
	if len(line) > longest {
		line = strings.ToValidUTF8(line[:longest], "") + "…"
	}
	return line
}
