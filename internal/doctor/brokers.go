package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/proxy"
	"github.com/offsetproxy/offsetproxy/proxy/prober"
)

// Settings of brokers that are looked at.
const (
	settingExpiry              = "producer.id.expiration.ms"
	settingTransactionalExpiry = "transactional.id.expiration.ms" // before Kafka 3.4
	settingExpiryCheck         = "producer.id.expiration.check.interval.ms"
	settingConnectionIdle      = "connections.max.idle.ms"
	settingAutoCreate          = "auto.create.topics.enable"
	settingAuthorizer          = "authorizer.class.name"
	settingSuperUsers          = "super.users"
	settingAllowEveryone       = "allow.everyone.if.no.acl.found"
)

// subject names a broker.
func (b *Broker) subject() string { return fmt.Sprintf("broker %d", b.Node) }

// answering are the brokers that answer.
func (j *judge) answering() []*Broker {
	var all []*Broker
	for i := range j.Brokers {
		if !j.Brokers[i].Failed.Failed() {
			all = append(all, &j.Brokers[i])
		}
	}
	return all
}

func (j *judge) judgeBrokers() {
	for i := range j.Brokers {
		b := &j.Brokers[i]
		if b.Failed.Failed() {
			j.find(BrokerUnreachable, Error, b.subject(), "it advertises %s and does not answer there: %s", b.Address, b.Failed.Text)
		}
	}
	j.good(BrokerUnreachable, "brokers", "%s at the addresses advertised", counted(len(j.Brokers), "broker answers", "brokers answer"))
	j.judgeVersions()
	for _, b := range j.answering() {
		j.judgeKind(b)
	}
	var creating []string
	for _, b := range j.answering() {
		if v := b.Configs[settingAutoCreate]; v != nil && *v == "true" {
			creating = append(creating, strconv.Itoa(int(b.Node)))
		}
	}
	switch {
	case len(creating) > 0:
		j.find(AutoCreate, Note, "brokers", "auto.create.topics.enable=true at %s", listed(creating))
	case len(j.answering()) > 0 && j.configsTold():
		j.find(AutoCreate, OK, "brokers", "auto.create.topics.enable=false")
	}
}

// configsTold reports whether all brokers that answer show their settings.
func (j *judge) configsTold() bool {
	return !slices.ContainsFunc(j.answering(), func(b *Broker) bool { return b.ConfigsFailed.Failed() })
}

func (j *judge) judgeVersions() {
	versions := map[string][]string{}
	for _, b := range j.answering() {
		for _, need := range prober.Needs() {
			has, speaks := b.APIs[need.Key]
			if !speaks || has.Max < need.Min || has.Min > need.Max {
				j.find(BrokerVersion, j.forTopics(Error), b.subject(), "Kafka %s: it speaks none of the versions %d to %d of %s, which the fence needs", b.Version, need.Min, need.Max, need.Name)
			}
		}
		versions[b.Version] = append(versions[b.Version], strconv.Itoa(int(b.Node)))
	}
	names := slices.Sorted(maps.Keys(versions))
	if len(names) > 1 {
		var parts []string
		for _, v := range names {
			parts = append(parts, fmt.Sprintf("%s (node ids %s)", v, listed(versions[v])))
		}
		j.find(BrokerVersion, Note, "brokers", "they speak as different versions: %s", strings.Join(parts, "; "))
	}
	if len(names) > 0 {
		j.good(BrokerVersion, "brokers", "they speak as Kafka %s", names[0])
	}
}

// judgeKind: how duplicates are told on a broker.
func (j *judge) judgeKind(b *Broker) {
	p := &j.Settings.Proxy
	asserted := p.BrokerKind != proxy.AutoKind
	switch {
	case b.Kind != nil && b.Kind.Refusal != "":
		j.find(Duplicates, j.forTopics(Error), b.subject(), "%s", b.Kind.Refusal)
	case b.Kind != nil && !b.Kind.Marks:
		j.findAnd(Duplicates, j.forTopics(Warning), b.subject(), "Nothing, if the brokers are not Apache Kafka: each success is read back, and conditional records need append-ids.", "a batch that was sent twice is marked by nothing that is known")
	case b.Kind != nil:
		j.find(Duplicates, OK, b.subject(), "a batch that was sent twice is marked by %s", b.Kind.MarksBy)
	case b.KindFailed.Failed() && !asserted && j.probeable(b):
		j.find(Duplicates, j.forTopics(Warning), b.subject(), "it cannot be probed: %s", b.KindFailed.Text)
	case asserted:
		j.findAnd(Duplicates, Note, b.subject(), "If you are not sure, set brokers.kind to auto: proxies then find out.", "not looked at: brokers.kind says what it is, on your word")
	default:
		j.judgeProbeTopic(b)
	}
}

// judgeProbeTopic: whether a proxy will be able to probe a broker.
func (j *judge) judgeProbeTopic(b *Broker) {
	t, seen := j.probeTopic()
	if !seen {
		j.findAnd(Duplicates, Note, b.subject(), "Nothing, if the proxy's principal may CREATE the topic; else create it.", "not known: the topic %s, on which proxies find out, does not exist yet or may not be seen", j.Settings.Proxy.ProbeTopic)
		return
	}
	if !t.leads(b.Node) {
		j.findAnd(Duplicates, Note, b.subject(), "Nothing, if the proxy's principal may ALTER the topic; else add a partition that only this broker has.", "not known: it leads no partition of %s, on which proxies find out", j.Settings.Proxy.ProbeTopic)
		return
	}
	j.findAnd(Duplicates, Note, b.subject(), "Nothing: proxies find out by themselves. To see it now, run doctor with --probe.", "not looked at, since that writes to %s", t.Name)
}

// probeTopic finds the topic on which proxies probe; false: there is none that may be
// seen.
func (j *judge) probeTopic() (Topic, bool) {
	i := slices.IndexFunc(j.Topics, func(t Topic) bool { return t.Name == j.Settings.Proxy.ProbeTopic && !t.Failed.Failed() })
	if i < 0 {
		return Topic{}, false
	}
	return j.Topics[i], true
}

// probeable reports whether a broker leads a partition of the probe topic.
func (j *judge) probeable(b *Broker) bool {
	t, seen := j.probeTopic()
	return seen && t.leads(b.Node)
}

// leads reports whether a broker leads a partition.
func (t *Topic) leads(node int32) bool {
	return slices.ContainsFunc(t.Partitions, func(p Partition) bool { return p.Leader == node })
}

// judgeExpiry holds the brokers' limits against what the fence needs.
func (j *judge) judgeExpiry() {
	p := &j.Settings.Proxy
	asserted := proxy.BrokerLimits{ProducerExpiry: p.AssertedProducerExpiry, ConnectionIdle: p.AssertedConnectionIdle, ExpiryCheck: p.AssertedExpiryCheck}
	toldAll := asserted.ProducerExpiry > 0 && asserted.ConnectionIdle > 0
	if p.BrokerKind == proxy.EmbeddedKfake {
		j.findAnd(ProducerExpiry, Note, "brokers", "Nothing, for trying things out.", "brokers.kind says kfake, which tells no limits and forgets nothing")
		return
	}
	for _, b := range j.answering() {
		read, missing := limitsOf(b)
		if missing != "" && b.Kind != nil && b.Kind.Embedded {
			j.findAnd(ProducerExpiry, Note, b.subject(), "Nothing, for trying things out.", "it is kfake, which tells no limits and forgets nothing")
			continue
		}
		if missing != "" && !toldAll {
			why := missing + " is not told"
			if b.ConfigsFailed.Failed() {
				why = b.ConfigsFailed.Text
			}
			j.findAnd(ProducerExpiry, j.forTopics(Error), b.subject(), "Grant the proxy's principal DESCRIBE_CONFIGS on the cluster, or assert the brokers' limits in the configuration (brokers: assert).",
				"its limits cannot be read, so that no topic is served: %s", why)
			continue
		}
		if missing != "" {
			j.findAnd(ProducerExpiry, Note, b.subject(), "See that they are right at all brokers.", "its limits cannot be read; those of brokers.assert count, on your word")
			continue
		}
		j.judgeAsserted(b, asserted, read)
		used := asserted.Or(read)
		if !p.Servable(used) {
			j.find(ProducerExpiry, j.forTopics(Error), b.subject(), "no topic is served: half of %s (%s) must be more than view_max_age %s + answer_max %s + %s %s + %s %s + clock_skew %s",
				settingExpiry, used.ProducerExpiry, p.ViewMaxAge, p.AnswerMax, settingConnectionIdle, used.ConnectionIdle, settingExpiryCheck, used.ExpiryCheck, p.ClockSkew)
			continue
		}
		j.find(ProducerExpiry, OK, b.subject(), "%s is %s, %s %s", settingExpiry, used.ProducerExpiry, settingConnectionIdle, used.ConnectionIdle)
	}
}

// judgeAsserted: what the operator says must be no better than what is.
func (j *judge) judgeAsserted(b *Broker, asserted, read proxy.BrokerLimits) {
	for _, limit := range []struct {
		name           string
		asserted, read time.Duration
		least          bool // less is worse
	}{
		{settingExpiry, asserted.ProducerExpiry, read.ProducerExpiry, true},
		{settingConnectionIdle, asserted.ConnectionIdle, read.ConnectionIdle, false},
		{settingExpiryCheck, asserted.ExpiryCheck, read.ExpiryCheck, false},
	} {
		better := limit.asserted < limit.read
		if limit.least {
			better = limit.asserted > limit.read
		}
		if limit.asserted > 0 && better {
			j.findAnd(ProducerExpiry, j.forTopics(Error), b.subject(), "Remove it from brokers.assert, so that it is read, or say what it is.",
				"brokers.assert says that %s is %s, and it is %s: appends can land where another was promised", limit.name, limit.asserted, limit.read)
		}
	}
}

// limitsOf reads a broker's limits; missing is the one that it does not tell.
func limitsOf(b *Broker) (l proxy.BrokerLimits, missing string) {
	expiry, ok := millis(b.Configs, settingExpiry)
	if !ok {
		if expiry, ok = millis(b.Configs, settingTransactionalExpiry); !ok {
			missing = settingExpiry
		}
	}
	idle, ok := millis(b.Configs, settingConnectionIdle)
	if !ok {
		missing = cmp.Or(missing, settingConnectionIdle)
	}
	check, _ := millis(b.Configs, settingExpiryCheck)
	return proxy.BrokerLimits{ProducerExpiry: expiry, ConnectionIdle: idle, ExpiryCheck: check}.Or(proxy.KafkaLimits()), missing
}

// millis reads a setting in milliseconds; what is negative or very long is taken to be
// ten years.
func millis(configs map[string]*string, name string) (time.Duration, bool) {
	const most = 10 * 365 * 24 * time.Hour
	text := configs[name]
	if text == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(*text, 10, 64)
	switch {
	case err != nil:
		return 0, false
	case n < 0 || n > most.Milliseconds():
		return most, true
	}
	return time.Duration(n) * time.Millisecond, true
}

// neededOnTopic are the rights that the proxy's principal needs there.
var neededOnTopic = []kmsg.ACLOperation{kmsg.ACLOperationDescribe, kmsg.ACLOperationRead, kmsg.ACLOperationDescribeConfigs}

// judgeRights: whether the proxy's principal may ask what it must know.
func (j *judge) judgeRights() {
	p := &j.Settings.Proxy
	asserted := p.AssertedProducerExpiry > 0 && p.AssertedConnectionIdle > 0
	if !j.ClusterRights.Has(kmsg.ACLOperationDescribeConfigs) && !asserted {
		j.findAnd(ProxyRights, j.forTopics(Error), "cluster", "kafka-acls.sh --bootstrap-server BROKERS --add --allow-principal PRINCIPAL --operation DescribeConfigs --cluster, or assert the brokers' limits in the configuration (brokers: assert).",
			"%s lacks DESCRIBE_CONFIGS on the cluster, so that no topic is served", j.principal())
	}
	for _, t := range j.rules.topics {
		if t.Failed.Failed() && t.Failed.Code == codeTopicAuthorization {
			j.find(ProxyRights, t.how(Error), t.subject(), "%s lacks DESCRIBE: the topic is not served", j.principal())
		}
	}
	known := j.ClusterRights.Known
	for _, t := range j.rules.seen() {
		known = known || t.Rights.Known
		var lacks []string
		for _, right := range neededOnTopic {
			if !t.Rights.Has(right) && !(right == kmsg.ACLOperationDescribeConfigs && asserted) {
				lacks = append(lacks, right.String())
			}
		}
		if len(lacks) > 0 {
			j.find(ProxyRights, t.how(Error), t.subject(), "%s lacks %s: the topic is not served", j.principal(), strings.Join(lacks, " and "))
		}
		if p.Credentials.ForClients && !t.Rights.Has(kmsg.ACLOperationWrite) {
			j.findAnd(ProxyRights, t.how(Error), t.subject(), "kafka-acls.sh --add --allow-principal User:NAME --operation Write --topic NAME, or leave for_clients out.",
				"%s lacks WRITE, and logs in for clients: the brokers refuse all appends", j.principal())
		}
	}
	if known {
		j.good(ProxyRights, "the proxy's principal", "%s has the rights it needs", j.principal())
	} else {
		j.find(ProxyRights, Note, "the proxy's principal", "brokers do not tell which rights it has")
	}
}

// principal is who the proxy is to brokers, as far as is known.
func (j *judge) principal() string {
	c := j.Settings.Proxy.Credentials
	switch {
	case c.Mechanism == proxy.NoLogin:
		return "the proxy, which does not log in,"
	case c.User == "":
		return "the proxy's token"
	}
	return "User:" + c.User
}
