package doctor

import "slices"

// ID names a check, and is its anchor in docs/doctor.md.
type ID string

// The checks.
const (
	BootstrapUnreachable ID = "bootstrap-unreachable"
	BrokerUnreachable    ID = "broker-unreachable"
	BrokerVersion        ID = "broker-version"
	Duplicates           ID = "duplicates"
	ProducerExpiry       ID = "producer-expiry"
	AutoCreate           ID = "auto-create"
	ProxyRights          ID = "proxy-rights"
	Password             ID = "password"
	Clock                ID = "clock"

	RuleNeverUsed      ID = "rule-never-used"
	RuleMatchesNothing ID = "rule-matches-nothing"
	TopicMissing       ID = "topic-missing"
	TopicsUnseen       ID = "topics-unseen"

	TopicSettings     ID = "topic-settings"
	TopicUnclean      ID = "topic-unclean-election"
	TopicReplicas     ID = "topic-replicas"
	TopicMinInSync    ID = "topic-min-insync"
	TopicInSync       ID = "topic-in-sync"
	TopicTimestamps   ID = "topic-timestamps"
	TopicCompacted    ID = "topic-compacted"
	TopicBatchSize    ID = "topic-batch-size"
	TopicWriters      ID = "topic-writers"
	TopicDeleters     ID = "topic-deleters"
	SuperUsers        ID = "super-users"
	OtherProducers    ID = "other-producers"
	OpenTransaction   ID = "open-transaction"
	SettingsNote      ID = "settings-note"
	AdvertisedAddress ID = "advertised-address"
	BrokerHidden      ID = "broker-hidden"
	Certificate       ID = "certificate"
	Resources         ID = "resources"

	ProxyUnreachable ID = "proxy-unreachable"
	ProxyNotReady    ID = "proxy-not-ready"
	ProxiesDiffer    ID = "proxies-differ"
	ProxyBehind      ID = "proxy-behind"
)

// Check explains what findings of an ID mean.
type Check struct {
	ID ID
	// Title is what is looked at.
	Title string
	// Severities are those that its findings can have, the best first.
	Severities []Severity
	// Means is what a finding above ok says about the promise.
	Means string
	// Do is what to do. In commands BROKERS stands for the bootstrap addresses, PRINCIPAL
	// for the proxy's and NAME for the topic, which findings have in their place.
	Do string
}

// Checks lists all, in the order of reports.
func Checks() []Check { return slices.Clone(checks) }

var checks = []Check{
	{BootstrapUnreachable, "Bootstrap addresses answer", []Severity{OK, Warning, Error},
		"The proxy finds the cluster by these addresses. One that does not answer is a spare that is missing; if none does, nothing works, and nothing else could be looked at.",
		"Look at the address, at firewalls, and whether the port expects TLS or a login (`upstream: tls`, `upstream: sasl`)."},
	{BrokerUnreachable, "Brokers answer at the addresses that they advertise", []Severity{OK, Error},
		"The proxy reaches brokers by what they advertise (`advertised.listeners`). Appends to partitions led by a broker that cannot be reached fail.",
		"Start the broker, or have it advertise an address that is reachable from the proxies. Run doctor where the proxies run: elsewhere another thing may be reachable."},
	{BrokerVersion, "Brokers speak what the fence needs", []Severity{OK, Note, Warning, Error},
		"Kafka 2.8 or later is needed (DescribeProducers). Where brokers of several versions run together, an upgrade is under way.",
		"Upgrade the brokers. An upgrade needs nothing of the proxies: each broker that restarts is probed again."},
	{Duplicates, "Brokers mark duplicates", []Severity{OK, Note, Warning, Error},
		"The proxy must tell an append from a duplicate. Proxies find out by themselves; doctor does with `--probe` only, since that writes. On a broker that cannot be probed each success is verified by reading the log, and conditional records need append-ids. Where the broker contradicts `brokers: kind`, or takes batches out of sequence, its topics are not served.",
		"Grant the proxy its rights on the probe topic, or create that topic with a partition led by each broker (semantics.md, \"What kind of broker\"). If brokers contradict `brokers: kind`, set it to `auto`."},
	{ProducerExpiry, "Brokers remember the fence for long enough", []Severity{OK, Note, Warning, Error},
		"Half of `producer.id.expiration.ms` must be more than all that can hold up a stamped batch: `view_max_age`, `answer_max`, `connections.max.idle.ms`, `producer.id.expiration.check.interval.ms` and `clock_skew`. Otherwise no topic is served. What is asserted in the configuration must not be more than what the brokers have: then the fence could be forgotten too soon, and appends land where another was promised.",
		"Raise `producer.id.expiration.ms` at all brokers (Kafka's default is 24 h), or lower `view_max_age` or `answer_max` at all proxies. Grant the proxy DESCRIBE_CONFIGS on the cluster so that nothing need be asserted."},
	{AutoCreate, "Topics are not created by accident", []Severity{OK, Note},
		"With `auto.create.topics.enable` a misspelt name makes a topic, with the brokers' defaults for replicas. If it matches a rule it is fenced all the same.",
		"Set `auto.create.topics.enable=false` at the brokers, or see that `default.replication.factor` and `min.insync.replicas` are 3 and 2."},
	{ProxyRights, "The proxy may ask what it needs to know", []Severity{OK, Note, Warning, Error},
		"Without DESCRIBE and READ on a topic under a rule, and DESCRIBE_CONFIGS on it and on the cluster, the topic is not served. A proxy that logs in for clients (`for_clients`) needs WRITE on it too: without, the brokers refuse all appends.",
		"Grant the rights to the principal of `upstream: sasl`, for example `kafka-acls.sh --bootstrap-server BROKERS --add --allow-principal PRINCIPAL --operation Describe --operation Read --operation DescribeConfigs --topic NAME`."},
	{Password, "The proxy's password can be read", []Severity{OK, Error},
		"What `upstream: sasl` names as the place of the password, or of the token, is not there or may not be read. serve does not start without it, and no broker lets the proxy in.",
		"Put it there, and let the user that the proxy runs as read it. Run doctor as that user."},
	{Clock, "Clocks agree", []Severity{OK, Note, Warning, Error},
		"The fence counts on clocks that are no further apart than `clock_skew`. Doctor compares this machine's with the controller's (by the time that DescribeQuorum shows) and with those of the machines of `--proxies` (to a second).",
		"Set up NTP on the machine that is off, or raise `clock_skew` at all proxies."},

	{RuleNeverUsed, "Every rule can be the first that matches", []Severity{OK, Warning},
		"A rule that others before it leave nothing for is not in force, whatever it says.",
		"Move it before the rule that is named, or remove it."},
	{RuleMatchesNothing, "Every pattern matches some topic", []Severity{OK, Note},
		"A pattern that no topic matches may be misspelt, or its topics are yet to be created.",
		"Compare it with `kafka-topics.sh --bootstrap-server BROKERS --list`. A regular expression must match the whole name."},
	{TopicMissing, "Topics that rules name exist", []Severity{OK, Note, Warning},
		"A rule that names one topic is for a topic that is not there: it is misspelt, or yet to be created.",
		"Create the topic, with three replicas and `min.insync.replicas=2`, or correct the rule."},
	{TopicsUnseen, "Topics can be listed", []Severity{OK, Warning, Error},
		"Patterns were compared with the topics that the proxy's principal may describe. Others may match too.",
		"Grant the principal DESCRIBE on the topics under rules."},

	{TopicSettings, "The settings of topics under a rule can be read", []Severity{OK, Warning, Error},
		"What cannot be read is unknown. Unless the brokers' limits are asserted, the topic is not served.",
		"Grant the proxy's principal DESCRIBE_CONFIGS on the topic."},
	{TopicUnclean, "No unclean leader election", []Severity{OK, Warning, Error},
		"With `unclean.leader.election.enable=true` a broker may lead that lacks acknowledged records: what was promised is lost, and its offset promised again. The promise does not hold on such a topic.",
		"`kafka-configs.sh --bootstrap-server BROKERS --alter --topic NAME --add-config unclean.leader.election.enable=false`"},
	{TopicReplicas, "Topics have several replicas", []Severity{OK, Note, Warning},
		"What has one replica is gone with its disk, and with it the promise.",
		"Give the topic three replicas with `kafka-reassign-partitions.sh`."},
	{TopicMinInSync, "Two replicas acknowledge", []Severity{OK, Note, Warning, Error},
		"With `min.insync.replicas=1` the leader alone may acknowledge, and lose what it has not written to disk. With as many as there are replicas, one broker that is down stops all appends; with more, there are none.",
		"`kafka-configs.sh --bootstrap-server BROKERS --alter --topic NAME --add-config min.insync.replicas=2`, with three replicas."},
	{TopicInSync, "Partitions are led, and enough replicas are in sync", []Severity{OK, Note, Warning, Error},
		"A partition without a leader, or with fewer replicas in sync than `min.insync.replicas`, takes no appends now.",
		"Start the brokers that are down, and look at their logs for why replicas fall behind."},
	{TopicTimestamps, "message.timestamp.type", []Severity{OK, Note},
		"With LogAppendTime conditional records need append-ids, since duplicates cannot be told by their time.",
		"Have writers send append-ids, or set `message.timestamp.type=CreateTime` and restart the proxies before writers go on."},
	{TopicCompacted, "Nothing is compacted away", []Severity{OK, Note},
		"Where a record was compacted away, whether a batch was there cannot be told: a refusal then says so, and what was unknown stays unknown.",
		"Mostly nothing. Writers that must know read the partition before they try again."},
	{TopicBatchSize, "The largest batch can be read", []Severity{OK, Note, Warning},
		"A batch larger than `max_control_answer` or `max_decompressed` can never be read back or taken in: its writers are told unknown, or are refused.",
		"Raise `limits: max_control_answer` and `max_decompressed` above the topic's `max.message.bytes`, or lower that."},
	{TopicWriters, "Only writers that come through the proxies may write", []Severity{OK, Note, Warning, Error},
		"Whoever may write a fenced topic at the brokers themselves can put a record where a proxy has promised none. The proxies report what they see of that; they cannot prevent it. Doctor goes by the ACLs, as the brokers do: WRITE or ALL on the topic by name, by prefix or by `*`, less what is denied on all hosts.",
		"Best: have the proxies log in for clients (`for_clients`) and let their principal alone WRITE. Else keep clients from the brokers by the network and say `--closed-network`, or name the principals that come through the proxies with `--writers`."},
	{TopicDeleters, "Nobody deletes topics under a rule, or their records", []Severity{OK, Note},
		"A topic that is deleted and created anew begins at 0 again: the offsets that were promised are promised a second time. What is deleted of a log cannot be compared with what a client sends again, so that it is told unknown, or that its place is gone. Doctor goes by the ACLs of topics for DELETE and ALL; whoever may DELETE on the cluster, and super users, may too.",
		"Take DELETE on the topic from all who do not need it: `kafka-acls.sh --remove`. Where a topic has to begin anew, give it another name."},
	{SuperUsers, "Super users", []Severity{OK, Note},
		"Super users may write everything, and brokers do not say who they are.",
		"Look at `super.users` of the brokers: only who operates the cluster belongs there, and nobody writes as one of them."},
	{OtherProducers, "No other producers are remembered", []Severity{OK, Note, Warning},
		"The proxies stamp all batches of a fenced topic with one producer id. Another one was at work in the partition: an idempotent writer went around the proxies, or wrote before the rule began.",
		"If its last record is newer than the rule, find who it is and have it come through a proxy."},
	{OpenTransaction, "No transaction is open", []Severity{OK, Error},
		"The marker that ends a transaction takes an offset, which a proxy may have promised to somebody.",
		"Have the transaction end before the rule begins: `kafka-transactions.sh --bootstrap-server BROKERS find-hanging --topic NAME` names it, and `abort` ends it."},
	{SettingsNote, "The configuration", []Severity{OK, Note},
		"What check-config says too: it is allowed and may not be meant.",
		"See the note."},
	{AdvertisedAddress, "Clients are told addresses that they can use", []Severity{OK, Note, Warning, Error},
		"A host that does not resolve, or that is a loopback address, is of no use to clients on other machines. One that is a broker's own leads clients around the proxy.",
		"Set `advertised_host` (or `server_names`) to a name that clients resolve to the proxies. Run doctor where clients run to see what they would see."},
	{BrokerHidden, "Every broker has a port", []Severity{OK, Error},
		"A broker without a port at the proxy is hidden from clients: they find no leader for its partitions.",
		"Widen `broker_ports`, or give the node a port in `node_ports`."},
	{Certificate, "Certificates are good for two weeks and more", []Severity{OK, Warning, Error},
		"When a certificate expires, new connections fail.",
		"Renew it. The proxy takes over what its files hold without a restart."},
	{Resources, "Descriptors and memory suffice for the limits", []Severity{OK, Note, Warning},
		"The settings let clients have the proxy use more than the system gives it: beyond that it accepts nobody, or is killed. Doctor looks at what its own process gets: run it as the proxy is run.",
		"Raise what the finding names, or lower the limit."},

	{ProxyUnreachable, "Proxies show what they run by", []Severity{OK, Note, Error},
		"Whether all proxies agree is unknown, and one that does not breaks the promise for all.",
		"Give `--proxies` the admin address (`metrics: listen`) of every proxy of the cluster."},
	{ProxyNotReady, "Proxies are ready", []Severity{OK, Warning},
		"/readyz says why: the proxy reaches no broker, or drains.",
		"See its log."},
	{ProxiesDiffer, "Proxies agree", []Severity{OK, Warning, Error},
		"Proxies that differ in what the fence rests on do not keep the promise together: a topic fenced by one and not by another is open.",
		"Give all proxies the same settings, and restart those in which other things than rules differ."},
	{ProxyBehind, "Proxies run by this configuration", []Severity{OK, Warning},
		"All proxies may agree and yet not have taken over this file.",
		"SIGHUP has a proxy read its file again for rules; what else has changed needs a restart. See `offsetproxy_config_reload_failed`."},
}
