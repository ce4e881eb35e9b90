package proxy

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/wire"
)

// Access bounds the APIs that clients of a listener may use. The zero value allows
// all, also those that are not known.
type Access struct {
	// Allow, if not empty, lists the API keys that may be used. ApiVersions and
	// those of SASL may be used always.
	Allow []int16
	// Deny lists API keys that may not be used, whatever Allow says.
	Deny []int16
	// ReadOnly refuses every API that changes the cluster or a log, and those that
	// are not known. What consumers need may be used, commits of offsets included.
	//
	// Produce that may not be used is answered by TOPIC_AUTHORIZATION_FAILED, and
	// InitProducerId by CLUSTER_AUTHORIZATION_FAILED; at a request of another API the
	// connection is closed, as brokers do at one that they do not have.
	//
	// Who may not use CreateTopics creates none by Metadata either: the flag that asks
	// for it is cleared, and versions 0 to 3, which have none, may name no topics.
	ReadOnly bool
}

// always may be used, or no client could connect.
var always = []int16{int16(kmsg.ApiVersions), int16(kmsg.SASLHandshake), int16(kmsg.SASLAuthenticate)}

// readOnly lists the APIs that a read-only listener serves: those of consumers and of
// who looks at a cluster.
var readOnly = append([]int16{
	int16(kmsg.Fetch), int16(kmsg.ListOffsets), int16(kmsg.Metadata), int16(kmsg.OffsetForLeaderEpoch),
	int16(kmsg.DescribeCluster), int16(kmsg.DescribeTopicPartitions), int16(kmsg.DescribeQuorum),
	// Consumers in groups.
	int16(kmsg.FindCoordinator), int16(kmsg.JoinGroup), int16(kmsg.SyncGroup), int16(kmsg.Heartbeat), int16(kmsg.LeaveGroup),
	int16(kmsg.OffsetCommit), int16(kmsg.OffsetFetch), int16(kmsg.ConsumerGroupHeartbeat),
	int16(kmsg.ShareGroupHeartbeat), int16(kmsg.ShareFetch), int16(kmsg.ShareAcknowledge),
	// Who looks.
	int16(kmsg.ListGroups), int16(kmsg.DescribeGroups), int16(kmsg.ConsumerGroupDescribe), int16(kmsg.ShareGroupDescribe),
	int16(kmsg.DescribeConfigs), int16(kmsg.DescribeLogDirs), int16(kmsg.DescribeACLs), int16(kmsg.DescribeClientQuotas),
	int16(kmsg.DescribeProducers), int16(kmsg.DescribeTransactions), int16(kmsg.ListTransactions),
	int16(kmsg.ListPartitionReassignments), int16(kmsg.DescribeUserSCRAMCredentials),
	int16(kmsg.GetTelemetrySubscriptions), int16(kmsg.PushTelemetry), int16(kmsg.ListConfigResources),
}, always...)

// NeedsAPI reports whether no client could connect without an API.
func NeedsAPI(key int16) bool { return slices.Contains(always, key) }

// allows reports whether an API may be used.
func (a *Access) allows(key int16) bool {
	switch {
	case NeedsAPI(key):
		return true
	case a.ReadOnly && !slices.Contains(readOnly, key), slices.Contains(a.Deny, key):
		return false
	}
	return len(a.Allow) == 0 || slices.Contains(a.Allow, key)
}

// shows reports whether clients are told of an API. Of Produce and Fetch they always
// are: librdkafka derives from their versions which records a broker has, and could
// read nothing without.
func (a *Access) shows(key int16) bool {
	return key == int16(kmsg.Produce) || key == int16(kmsg.Fetch) || a.allows(key)
}

func (a *Access) bounds() bool { return a.ReadOnly || len(a.Allow) > 0 || len(a.Deny) > 0 }

func (a *Access) validate() *ConfigError {
	for _, key := range slices.Concat(a.Allow, a.Deny) {
		if key < 0 {
			return wrongListener("Access", "%d is not an API key", key)
		}
	}
	for _, key := range always {
		if slices.Contains(a.Deny, key) {
			return wrongListener("Access.Deny", "no client could connect without API key %d (%s)", key, kmsg.NameForKey(key))
		}
	}
	return nil
}

// deny refuses a request that may not be made at the entrance.
func (c *conn) deny(h wire.RequestHeader) error {
	c.p.metrics.denied[keyIndex(h.APIKey)].Add(1)
	err := &deniedError{h.APIKey, c.entrance.Name}
	switch kmsg.Key(h.APIKey) {
	case kmsg.Produce:
		view := &c.produceView
		if err := view.Parse(c.frame[4+h.BodyOffset:], h.APIVersion); err != nil {
			return malformed(reasonProduce, "Produce v%d: %v", h.APIVersion, err)
		}
		if len(view.Partitions) == 0 {
			return err // there is nothing that could be answered
		}
		c.taken = c.p.rules.take()
		defer c.leaveRules()
		return c.p.fencing.refuseAll(c, h, view, kerr.TopicAuthorizationFailed.Code, err.Error())
	case kmsg.InitProducerID:
		answer := kmsg.NewPtrInitProducerIDResponse()
		answer.Version, answer.ErrorCode = h.APIVersion, kerr.ClusterAuthorizationFailed.Code
		answer.ProducerID, answer.ProducerEpoch = -1, -1
		if h.APIVersion <= answer.MaxVersion() {
			return c.answerLocally(h, appendAnswer(answer))
		}
	}
	return err
}

// allowAutoCreation is the first version of Metadata in which a client says whether
// topics that do not exist are to be created (KIP-204); before, they always are.
const allowAutoCreation = 4

// createNothing has the Metadata request in c.frame create no topic, for a client that
// may not. What cannot say so and names topics is refused.
func (c *conn) createNothing(h wire.RequestHeader) error {
	request := kmsg.NewPtrMetadataRequest()
	request.Version = h.APIVersion
	body := c.frame[4+h.BodyOffset:]
	if err := request.ReadFrom(body); err != nil {
		return malformed(reasonMetadata, "Metadata v%d: %v", h.APIVersion, err)
	}
	switch {
	case h.APIVersion < allowAutoCreation && len(request.Topics) == 0, h.APIVersion >= allowAutoCreation && !request.AllowAutoTopicCreation:
		return nil
	case h.APIVersion < allowAutoCreation:
		c.p.metrics.denied[keyIndex(h.APIKey)].Add(1)
		return &deniedError{h.APIKey, c.entrance.Name}
	}
	request.AllowAutoTopicCreation = false
	// A flag has one byte, so only what is encoded in an odd way differs in length.
	clean := request.AppendTo(nil)
	if len(clean) != len(body) {
		return malformed(reasonMetadata, "Metadata v%d is not encoded in the usual way", h.APIVersion)
	}
	copy(body, clean)
	return nil
}

// appendAnswer writes an answer whose first 8 bytes, length and correlation id, are
// left to its slot.
func appendAnswer(answer kmsg.Response) []byte {
	frame := make([]byte, 8, 64)
	if answer.IsFlexible() {
		frame = append(frame, 0) // no tagged fields in the header
	}
	return answer.AppendTo(frame)
}

// deniedError says that a client may not use an API at its listener.
type deniedError struct {
	key      int16
	listener string
}

func (e *deniedError) Error() string {
	return fmt.Sprintf("%s (API key %d) may not be used at listener %s", kmsg.NameForKey(e.key), e.key, e.listener)
}
