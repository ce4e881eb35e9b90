package proxy

import "time"

// Status shows what goes on in a Proxy at one time, for people and programs that
// watch it. It holds no records and no secrets, and is of bounded size: what there
// is too much of is left out and counted. Counts are since the proxy was made; rates
// are the business of whoever asks twice. It is never changed.
type Status struct {
	// At is when it was taken.
	At time.Time `json:"at"`
	// UptimeSeconds is for how long the proxy has existed, in seconds.
	UptimeSeconds int64 `json:"uptime_seconds"`
	// State is one of ready, not_ready and draining.
	State string `json:"state"`
	// Reason says why it is not ready; empty if it is.
	Reason string `json:"reason,omitempty"`

	// Connections are those of clients.
	Connections ConnectionStatus `json:"connections"`
	// Traffic is what clients have sent and were answered.
	Traffic TrafficStatus `json:"traffic"`
	// Memory is what frames are held in.
	Memory MemoryStatus `json:"memory"`
	// LimitsHit is how often each limit made a connection wait or end, if it has.
	LimitsHit map[string]int64 `json:"limits_hit"`
	// Drain is how far the drain is; missing before it begins.
	Drain *DrainStatus `json:"drain,omitempty"`

	// Listeners are where clients come in.
	Listeners []ListenerStatus `json:"listeners"`
	// Brokers are those that are served, and those of the cluster that are hidden, by
	// node id.
	Brokers []BrokerStatus `json:"brokers"`
	// BrokersLeftOut is how many brokers are not shown.
	BrokersLeftOut int `json:"brokers_left_out"`

	// Rules are those in force, in the order in which they are tried.
	Rules []RuleStatus `json:"rules"`
	// RulesLeftOut is how many rules are not shown.
	RulesLeftOut int `json:"rules_left_out"`
	// DefaultMode is the mode of topics that no rule matches.
	DefaultMode string `json:"default_mode"`
	// RulesSettling: the rules were changed, and requests that earlier ones have
	// judged are not answered yet.
	RulesSettling bool `json:"rules_settling"`

	// Appends are the batches under a rule.
	Appends AppendStatus `json:"appends"`
	// Topics are those under a rule with which something is wrong.
	Topics []TopicStatus `json:"topics"`
	// TopicsUnserved is how many topics under a rule cannot be fenced, so that
	// Produce to them is refused. Not all of them may be among Topics.
	TopicsUnserved int64 `json:"topics_unserved"`
	// TopicsWeak is how many topics under a rule can lose acknowledged records.
	TopicsWeak int64 `json:"topics_weak"`
	// Partitions are fenced ones: those of unknown fate first, then those in which
	// most has happened since the Status before, then idle ones, the last used first.
	Partitions []PartitionStatus `json:"partitions"`
	// PartitionsInUse is how many have something going on, or had within a second
	// or so.
	PartitionsInUse int `json:"partitions_in_use"`
	// PartitionsIdle is how many others are remembered.
	PartitionsIdle int `json:"partitions_idle"`
	// PartitionsLeftOut is how many of both are not shown.
	PartitionsLeftOut int `json:"partitions_left_out"`
	// PartitionsBusy is how many could not be looked at, since others were at work in
	// them each time.
	PartitionsBusy int `json:"partitions_busy"`

	// Violations are the last batches that were appended at another offset than
	// promised, the newest first.
	Violations []EventStatus `json:"violations"`
	// Alarms are the last other signs that a condition of the fence does not hold, the
	// newest first.
	Alarms []EventStatus `json:"alarms"`
}

// ConnectionStatus counts connections of clients.
type ConnectionStatus struct {
	// Open is how many are open.
	Open int64 `json:"open"`
	// Max is how many may be open (limits.max_connections).
	Max int `json:"max"`
	// Accepted is how many were accepted so far.
	Accepted int64 `json:"accepted"`
}

// TrafficStatus counts what has gone through.
type TrafficStatus struct {
	// Requests is how many came from clients.
	Requests int64 `json:"requests"`
	// BytesIn are the bytes of requests.
	BytesIn int64 `json:"bytes_in"`
	// BytesOut are the bytes of answers.
	BytesOut int64 `json:"bytes_out"`
	// DialErrors is how many connections to brokers could not be opened.
	DialErrors int64 `json:"dial_errors"`
	// Malformed is how many connections were ended because of what came on them, by
	// reason.
	Malformed map[string]int64 `json:"malformed"`
}

// MemoryStatus is the memory for frames of all connections together.
type MemoryStatus struct {
	// RequestBytes are in use for requests.
	RequestBytes int64 `json:"request_bytes"`
	// AnswerBytes are in use for answers.
	AnswerBytes int64 `json:"answer_bytes"`
	// MaxBytes is how many may be in use (limits.max_buffered).
	MaxBytes int64 `json:"max_bytes"`
}

// DrainStatus is how far a drain is.
type DrainStatus struct {
	// Accepting: connections are still accepted, for drain_delay.
	Accepting bool `json:"accepting"`
	// ConnectionsLeft is how many are open yet.
	ConnectionsLeft int `json:"connections_left"`
	// TimeoutSeconds is how long it may take (limits.drain_timeout).
	TimeoutSeconds float64 `json:"timeout_seconds"`
}

// ListenerStatus is where clients come in.
type ListenerStatus struct {
	// Name is the listener's.
	Name string `json:"name"`
	// Address is where it listens; empty before it does.
	Address string `json:"address"`
	// TLS: clients are spoken to in TLS.
	TLS bool `json:"tls"`
	// Login: clients log in at the proxy itself.
	Login bool `json:"login"`
	// ServerNames is the domain by which brokers are told apart on one port; empty:
	// each has a port.
	ServerNames string `json:"server_names,omitempty"`
	// Connections is how many clients are there now.
	Connections int64 `json:"connections"`
}

// BrokerStatus is a broker of the cluster.
type BrokerStatus struct {
	// Node is its node id.
	Node int32 `json:"node"`
	// Upstream is where the proxy dials it.
	Upstream string `json:"upstream"`
	// Addresses are what clients are told, by the listener's name.
	Addresses map[string]string `json:"addresses"`
	// Hidden says for each listener whose clients are not told of the broker why, by its
	// name.
	Hidden map[string]string `json:"hidden,omitempty"`
	// InCluster: the cluster named it when it was asked last.
	InCluster bool `json:"in_cluster"`
	// State is one of reached, failing and untried, by the last connection that was opened.
	State string `json:"state"`
	// ReachedAt is when a connection was opened last; nil: never.
	ReachedAt *time.Time `json:"reached_at,omitempty"`
	// FailedAt is when one could not be opened last; nil: never.
	FailedAt *time.Time `json:"failed_at,omitempty"`
	// Failure says why, if that was after ReachedAt.
	Failure string `json:"failure,omitempty"`
	// MarksBy is how it marks duplicates, as the metric offsetproxy.brokers names it.
	MarksBy string `json:"marks_by"`
	// Problem says what is wrong with its kind, or why it is not known; empty: nothing.
	Problem string `json:"problem,omitempty"`
}

// RuleStatus is a rule in force, in the words of the configuration.
type RuleStatus struct {
	// Topics is the glob, if the rule has one.
	Topics string `json:"topics,omitempty"`
	// TopicsRegexp is the regular expression, if it has one.
	TopicsRegexp string `json:"topics_regexp,omitempty"`
	// Mode is one of off, observe, enforce and require.
	Mode string `json:"mode"`
	// Options are the options that differ from their defaults.
	Options map[string]string `json:"options"`
}

// AppendStatus counts batches under a rule.
type AppendStatus struct {
	// Outcomes is how many there were, by what became of them, as the metric
	// offsetproxy.appends names it. All names are there.
	Outcomes map[string]int64 `json:"outcomes"`
	// Retries are those given back to be sent again, by reason, as the metric
	// offsetproxy.appends.retries names it, if there were any.
	Retries map[string]int64 `json:"retries"`
	// Refusals are those refused before the fence, by reason, as the metric
	// offsetproxy.appends.refusals names it, if there were any.
	Refusals map[string]int64 `json:"refusals"`
	// Observed are those under a rule that only observes, by what the fence would have
	// said, as the metric offsetproxy.observed names it, if there were any.
	Observed map[string]int64 `json:"observed"`
	// Attempts is how many transmissions to brokers there were. How many there are for
	// each append is what contention costs.
	Attempts int64 `json:"attempts"`
	// LostRaces is how many of them the broker refused since somebody else was faster.
	LostRaces int64 `json:"lost_races"`
	// Pauses is how often a partition was left to other proxies for a moment.
	Pauses int64 `json:"pauses"`
	// Unknown is how many transmissions are of unknown fate now.
	Unknown int64 `json:"unknown"`
	// Waiting is how many batches wait in the proxy now.
	Waiting int64 `json:"waiting"`
	// Upstream is how many batches are on their way to a broker now.
	Upstream int64 `json:"upstream"`
	// Views is how many readings of the ends of partitions there were, by how they
	// ended.
	Views map[string]int64 `json:"views"`
	// AlarmCounts is how many alarms there were, by kind.
	AlarmCounts map[string]int64 `json:"alarm_counts"`
}

// TopicStatus is a topic with which something is wrong.
type TopicStatus struct {
	// Topic is its name.
	Topic string `json:"topic"`
	// Refusal says why it is not served, or could not be if its rule did more than
	// observe; empty: it is.
	Refusal string `json:"refusal,omitempty"`
	// Observed: its rule only observes, so that nothing is refused.
	Observed bool `json:"observed"`
	// Weak says how acknowledged records can be lost; empty: they cannot.
	Weak string `json:"weak,omitempty"`
}

// PartitionStatus is a fenced partition.
type PartitionStatus struct {
	// Topic is its topic's name.
	Topic string `json:"topic"`
	// Partition is its number.
	Partition int32 `json:"partition"`
	// State is one of open, held (batches wait here), unknown (transmissions are of unknown
	// fate), closed (batches are given back or refused), idle, and busy (it could not be
	// looked at, and all numbers are 0).
	State string `json:"state"`
	// Why explains held, unknown and closed.
	Why string `json:"why,omitempty"`
	// NextOffset is the next free offset as this proxy knows it.
	NextOffset int64 `json:"next_offset"`
	// NextKnown: NextOffset was read or acknowledged; else it is a lower bound.
	NextKnown bool `json:"next_known"`
	// CommittedEnd is the largest committed end that was seen.
	CommittedEnd int64 `json:"committed_end"`
	// ViewAgeMillis is how old the view is; −1: there is none.
	ViewAgeMillis int64 `json:"view_age_ms"`
	// Leader is the node id of the leader by the view; −1: not known.
	Leader int32 `json:"leader"`
	// LeaderEpoch is its epoch; −1: not known.
	LeaderEpoch int32 `json:"leader_epoch"`
	// Waiting is how many batches wait in the proxy.
	Waiting int `json:"waiting"`
	// Upstream is how many batches are on their way to the broker.
	Upstream int `json:"upstream"`
	// Unknown is how many transmissions are of unknown fate.
	Unknown int `json:"unknown"`
	// Turn is one of free (no other writer was noticed of late), ours, pausing (left
	// to others for a moment) and others.
	Turn string `json:"turn"`
	// Losing is how many connections lost the race for the last place they came for.
	Losing int `json:"losing"`
	// Attempts is how many transmissions to brokers there were. This and the counts
	// below go on for as long as the partition is remembered (limits.idle_views).
	Attempts uint64 `json:"attempts"`
	// LostRaces is how many of them the broker refused since somebody else was faster.
	LostRaces uint64 `json:"lost_races"`
	// Appended is how many batches were appended, replays among them.
	Appended uint64 `json:"appended"`
	// Refused is how many conditions were refused: taken, not reached, or behind one
	// that was refused.
	Refused uint64 `json:"refused"`
}

// EventStatus is something that a person has to look at.
type EventStatus struct {
	// At is when it was noticed.
	At time.Time `json:"at"`
	// Topic is where.
	Topic string `json:"topic"`
	// Partition is where.
	Partition int32 `json:"partition"`
	// What says what has happened.
	What string `json:"what"`
}
