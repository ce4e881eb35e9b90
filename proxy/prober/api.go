package prober

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// versionRange is the inclusive range of an API's versions that a broker
// speaks.
type versionRange struct{ min, max int16 }

// api is an API together with the versions that this package can use.
type api struct {
	key      int16
	name     string
	min, max int16
}

// The versions are bounded below by what a view needs and above by what has
// been tried; all brokers since 2.8 (the first with DescribeProducers) have
// all of them, save Metadata by id.
var (
	// OffsetForLeaderEpoch: current_leader_epoch since v2, the consumer's
	// replica id since v3.
	apiEpochEnd = api{int16(kmsg.OffsetForLeaderEpoch), "OffsetForLeaderEpoch", 3, 4}
	// DescribeProducers (KIP-664).
	apiDescribeProducers = api{int16(kmsg.DescribeProducers), "DescribeProducers", 0, 0}
	// ListOffsets: current_leader_epoch since v4, OFFSET_NOT_AVAILABLE told
	// from other errors since v5 (KIP-207).
	apiListOffsets = api{int16(kmsg.ListOffsets), "ListOffsets", 5, 7}
	// Fetch by name: current_leader_epoch since v9, zstd since v10; v11 tells
	// the broker our rack, upon which it may send us to a follower (KIP-392).
	apiFetch = api{int16(kmsg.Fetch), "Fetch", 10, 10}
	// Fetch by topic id (KIP-516).
	apiFetchByID = api{int16(kmsg.Fetch), "Fetch", 13, 13}
	// Metadata: leader epochs since v7, topic ids since v10.
	apiMetadata = api{int16(kmsg.Metadata), "Metadata", 10, 12}
	// Metadata by topic id.
	apiMetadataByID = api{int16(kmsg.Metadata), "Metadata", 12, 12}
	// DescribeConfigs: v1 tells unset from defaulted values.
	apiDescribeConfigs = api{int16(kmsg.DescribeConfigs), "DescribeConfigs", 1, 4}
	// ApiVersions: v3 is as old as the rest.
	apiVersions = api{int16(kmsg.ApiVersions), "ApiVersions", 3, 3}
)

// Need is an API that the fence cannot do without.
type Need struct {
	// Key and Name are the API's.
	Key  int16
	Name string
	// Min and Max are the versions that would do, inclusive.
	Min, Max int16
}

// Needs lists what a broker must speak for topics on it to be fenced, probes
// included.
func Needs() []Need {
	var needs []Need
	for _, a := range []api{apiVersions, apiMetadata, apiDescribeConfigs, apiListOffsets, apiEpochEnd, apiDescribeProducers, apiFetch, apiProbe} {
		needs = append(needs, Need{a.key, a.name, a.min, a.max})
	}
	return needs
}

// negotiate asks the broker for its versions.
func (c *conn) negotiate(ctx context.Context) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version = apiVersions.max
	req.ClientSoftwareName = "offsetproxy"
	req.ClientSoftwareVersion = "0"
	answers, err := c.roundTrip(ctx, req)
	if err != nil {
		return err
	}
	// A broker that does not know the version says so in the form of v0,
	// which begins with the error code as every version does.
	if len(answers[0]) >= 2 {
		if code := int16(binary.BigEndian.Uint16(answers[0])); code != codeNone {
			return &BrokerError{Code: code, Op: apiVersions.name}
		}
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	if err := c.decode(req, answers[0], resp); err != nil {
		return err
	}
	versions := make(map[int16]versionRange, len(resp.ApiKeys))
	for _, k := range resp.ApiKeys {
		versions[k.ApiKey] = versionRange{k.MinVersion, k.MaxVersion}
	}
	c.versions = versions
	return nil
}

// setVersion gives a request the highest version that both sides can use.
func (c *conn) setVersion(a api, req kmsg.Request) error {
	has, ok := c.versions[a.key]
	low, high := max(has.min, a.min), min(has.max, a.max)
	if !ok || low > high {
		return &UnsupportedError{Op: a.name, NeedMin: a.min, NeedMax: a.max}
	}
	req.SetVersion(high)
	return nil
}

// decode parses the answer to req into resp. An answer that does not parse
// breaks the connection.
func (c *conn) decode(req kmsg.Request, answer []byte, resp kmsg.Response) error {
	resp.SetVersion(req.GetVersion())
	// ApiVersions answers never have the flexible header (KIP-511).
	if resp.IsFlexible() && resp.Key() != apiVersions.key {
		var ok bool
		if answer, ok = skipTags(answer); !ok {
			return c.malformed(kmsg.NameForKey(resp.Key()), "header")
		}
	}
	if err := resp.ReadFrom(answer); err != nil {
		return c.malformed(kmsg.NameForKey(resp.Key()), err.Error())
	}
	return nil
}

// malformed breaks the connection because of what an answer says.
func (c *conn) malformed(op, what string) error {
	return c.broken("read from", fmt.Errorf("%w: %s: %s", errMalformed, op, what))
}

// skipTags skips the tagged fields of a response header (KIP-482).
func skipTags(b []byte) ([]byte, bool) {
	count, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, false
	}
	b = b[n:]
	for range count {
		if _, n = binary.Uvarint(b); n <= 0 { // the tag
			return nil, false
		}
		b = b[n:]
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, false
		}
		b = b[n+int(size):]
	}
	return b, true
}
