package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// Settings of topics that are looked at.
const (
	settingMinInSync     = "min.insync.replicas"
	settingUnclean       = "unclean.leader.election.enable"
	settingTimestampType = "message.timestamp.type"
	settingCleanup       = "cleanup.policy"
	settingBatchSize     = "max.message.bytes"
)

// judgeTopics looks at each topic under a rule.
func (j *judge) judgeTopics() {
	looked, read := j.rules.seen(), 0
	for _, t := range looked {
		if t.ConfigsFailed.Failed() {
			how := t.how(Error)
			if p := &j.Settings.Proxy; t.ConfigsFailed.Code == 0 || p.AssertedProducerExpiry > 0 && p.AssertedConnectionIdle > 0 {
				how = t.how(Warning) // brokers have not refused it, or it is served all the same
			}
			j.find(TopicSettings, how, t.subject(), "they cannot be read: %s", t.ConfigsFailed.Text)
		} else {
			read++
			j.judgeSettings(t)
		}
		j.judgeReplicas(t)
	}
	if len(looked) == 0 {
		return
	}
	const subject = "topics under a rule"
	j.good(TopicReplicas, subject, "each partition has more than one replica")
	j.good(TopicInSync, subject, "each partition is led, and its replicas are in sync")
	if read == 0 {
		return
	}
	j.good(TopicSettings, subject, "those of %s are read", counted(read, "topic", "topics"))
	// What a broker does not tell of each of them is not good.
	good := func(id ID, setting, seen string, args ...any) {
		if !slices.ContainsFunc(looked, func(t ruled) bool { return !t.ConfigsFailed.Failed() && t.setting(setting) == "" }) {
			j.good(id, subject, seen, args...)
		}
	}
	good(TopicUnclean, settingUnclean, "%s=false", settingUnclean)
	if slices.ContainsFunc(looked, func(t ruled) bool { return t.replicas() > 1 }) {
		good(TopicMinInSync, settingMinInSync, "%s is 2 or more, and less than there are replicas, where there are several", settingMinInSync)
	}
	good(TopicTimestamps, settingTimestampType, "CreateTime")
	good(TopicCompacted, settingCleanup, "%s=delete", settingCleanup)
	good(TopicBatchSize, settingBatchSize, "%s is within what the proxy takes", settingBatchSize)
}

// setting is one of a topic's; empty: it is not told.
func (t *Topic) setting(name string) string {
	if v := t.Configs[name]; v != nil {
		return *v
	}
	return ""
}

// replicas is how many the partition with the fewest has.
func (t *Topic) replicas() int {
	least := 0
	for i, p := range t.Partitions {
		if n := len(p.Replicas); i == 0 || n < least {
			least = n
		}
	}
	return least
}

func (j *judge) judgeSettings(t ruled) {
	if t.setting(settingUnclean) == "true" {
		j.find(TopicUnclean, t.how(Error), t.subject(), "%s=true: a broker may lead that has not got all that was acknowledged", settingUnclean)
	}
	least, _ := strconv.Atoi(t.setting(settingMinInSync))
	switch replicas := t.replicas(); {
	case least == 0 || replicas == 0:
	case least > replicas:
		j.find(TopicMinInSync, t.how(Error), t.subject(), "%s=%d, and there are %s: all appends are refused", settingMinInSync, least, counted(replicas, "replica", "replicas"))
	case replicas == 1:
		// TopicReplicas says so.
	case least == 1:
		j.find(TopicMinInSync, t.how(Warning), t.subject(), "%s=1: one broker alone may acknowledge, and lose what it has not written to disk", settingMinInSync)
	case least == replicas:
		j.find(TopicMinInSync, Note, t.subject(), "%s=%d, as many as there are replicas: one broker that is down stops all appends", settingMinInSync, least)
	}
	if t.setting(settingTimestampType) == "LogAppendTime" {
		j.find(TopicTimestamps, Note, t.subject(), "%s=LogAppendTime: conditional records need append-ids", settingTimestampType)
	}
	if policy := t.setting(settingCleanup); strings.Contains(policy, "compact") {
		j.find(TopicCompacted, Note, t.subject(), "%s=%s", settingCleanup, policy)
	}
	p := &j.Settings.Proxy
	bounds := min(p.MaxControlBytes, p.MaxDecompressedBytes)
	if size, err := strconv.Atoi(t.setting(settingBatchSize)); err == nil && size > bounds {
		j.find(TopicBatchSize, t.how(Warning), t.subject(), "%s=%d, and the proxy takes %d bytes at most (max_control_answer, max_decompressed)", settingBatchSize, size, bounds)
	}
}

// judgeReplicas looks at where a topic lies now.
func (j *judge) judgeReplicas(t ruled) {
	if t.replicas() == 1 {
		j.find(TopicReplicas, t.how(Warning), t.subject(), "it has one replica")
	}
	least, _ := strconv.Atoi(t.setting(settingMinInSync))
	var leaderless, few, behind []string
	for _, p := range t.Partitions {
		id := strconv.Itoa(int(p.ID))
		switch {
		case p.Leader < 0:
			leaderless = append(leaderless, id)
		case len(p.InSync) < least && least <= len(p.Replicas):
			few = append(few, id)
		case len(p.InSync) < len(p.Replicas):
			behind = append(behind, id)
		}
	}
	if len(leaderless) > 0 {
		j.find(TopicInSync, t.how(Error), t.subject(), "no broker leads partition %s: nothing can be appended there", listed(leaderless))
	}
	if len(few) > 0 {
		j.find(TopicInSync, t.how(Error), t.subject(), "partition %s has fewer replicas in sync than %s=%d: appends are refused there", listed(few), settingMinInSync, least)
	}
	if len(behind) > 0 {
		j.find(TopicInSync, Note, t.subject(), "partition %s has replicas that are not in sync", listed(behind))
	}
}

// recently is how new a record of another producer is if it is at work now.
const recently = 10 * time.Minute

// judgeProducers: whether others than the proxies were at work in fenced topics.
func (j *judge) judgeProducers() {
	looked := 0
	for _, t := range j.rules.seen() {
		if t.mode < proxy.ModeEnforce || t.ProducersFailed.Failed() {
			continue
		}
		looked++
		var newest Producer
		open, others := map[int32]bool{}, map[int64]bool{}
		for _, p := range t.Producers {
			if p.Open {
				open[p.Partition] = true
			}
			if p.ID != j.Settings.Proxy.FenceID {
				others[p.ID] = true
				if p.Last.After(newest.Last) {
					newest = p
				}
			}
		}
		if len(open) > 0 {
			j.find(OpenTransaction, Error, t.subject(), "a transaction is open in %s", counted(len(open), "partition", "partitions"))
		}
		if len(others) == 0 {
			continue
		}
		how := Note
		if j.At.Sub(newest.Last) < recently {
			how = Warning
		}
		j.find(OtherProducers, how, t.subject(), "brokers remember %s than the proxies' %s; the last record is of %s, in partition %d by id %d",
			counted(len(others), "producer id other", "producer ids other"), fmt.Sprintf("0x%x", j.Settings.Proxy.FenceID), newest.Last.UTC().Format(time.RFC3339), newest.Partition, newest.ID)
	}
	for _, t := range j.rules.seen() {
		if t.mode >= proxy.ModeEnforce && t.ProducersFailed.Failed() {
			j.findAnd(OtherProducers, Note, t.subject(), "Grant the proxy's principal READ on it.", "whether others write it cannot be seen: %s", t.ProducersFailed.Text)
		}
	}
	if looked > 0 {
		j.good(OtherProducers, "topics under a rule", "none but the proxies'")
		j.good(OpenTransaction, "topics under a rule", "none")
	}
}
