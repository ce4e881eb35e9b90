package proxy

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// versionRange is what the proxy can serve of an API.
type versionRange struct {
	min, max int16
	// keepMin tells clients of min whatever the broker says.
	keepMin bool
	// oldTold leaves what clients are told of versions below min as it is: they are
	// refused, but some clients take their absence for that of the API.
	oldTold bool
}

// apiLimits holds the APIs whose requests or answers the proxy reads, or
// whose newer answers bear addresses that it could not replace while
// streaming. Others pass in any version.
//
// Produce keeps version 0 because librdkafka before 2.8 takes its absence for
// a broker without gzip, snappy and lz4. Fetch v16 (KIP-951) and
// DescribeQuorum v2 (KIP-853) added addresses. SaslHandshake v0 is followed
// by bare tokens that cannot be told from requests; librdkafka never logs in where it
// is not told of it, and then uses v1.
var apiLimits = map[int16]versionRange{
	int16(kmsg.Produce):            {max: 13, keepMin: true},
	int16(kmsg.Fetch):              {max: 15},
	int16(kmsg.Metadata):           {max: (*kmsg.MetadataResponse)(nil).MaxVersion()},
	int16(kmsg.FindCoordinator):    {max: (*kmsg.FindCoordinatorResponse)(nil).MaxVersion()},
	int16(kmsg.SASLHandshake):      {min: 1, max: (*kmsg.SASLHandshakeResponse)(nil).MaxVersion(), oldTold: true},
	int16(kmsg.ApiVersions):        {max: (*kmsg.ApiVersionsResponse)(nil).MaxVersion()},
	int16(kmsg.DescribeQuorum):     {max: 1},
	int16(kmsg.DescribeCluster):    {max: (*kmsg.DescribeClusterResponse)(nil).MaxVersion()},
	int16(kmsg.AddPartitionsToTxn): {max: (*kmsg.AddPartitionsToTxnRequest)(nil).MaxVersion()},
	int16(kmsg.ShareFetch):         {max: (*kmsg.ShareFetchResponse)(nil).MaxVersion()},
	int16(kmsg.ShareAcknowledge):   {max: (*kmsg.ShareAcknowledgeResponse)(nil).MaxVersion()},
}

// checkVersion refuses requests that the client was told not to make.
func checkVersion(key, version int16) error {
	limit, limited := apiLimits[key]
	if !limited || limit.min <= version && version <= limit.max {
		return nil
	}
	return fmt.Errorf("%w: api key %d version %d, supported %d to %d",
		errUnsupportedVersion, key, version, limit.min, limit.max)
}

// narrow cuts the version ranges of an ApiVersions answer to what the proxy
// can serve and the listener shows. An API of which nothing is left is left out.
func narrow(access *Access, keys []kmsg.ApiVersionsResponseApiKey) []kmsg.ApiVersionsResponseApiKey {
	kept := keys[:0]
	for _, k := range keys {
		if !access.shows(k.ApiKey) {
			continue
		}
		if limit, limited := apiLimits[k.ApiKey]; limited {
			if !limit.oldTold {
				k.MinVersion = max(k.MinVersion, limit.min)
			}
			k.MaxVersion = min(k.MaxVersion, limit.max)
			if limit.keepMin {
				k.MinVersion = limit.min
			}
			if k.MinVersion > k.MaxVersion {
				continue
			}
		}
		kept = append(kept, k)
	}
	return kept
}

// narrowAnswer narrows the body of an ApiVersions answer. A broker that does
// not know the version asked for answers error 35 in version 0 (KIP-511),
// which is relayed as that.
func narrowAnswer(access *Access, version int16, body []byte) (*kmsg.ApiVersionsResponse, error) {
	answer := kmsg.NewPtrApiVersionsResponse()
	if len(body) >= 2 && int16(binary.BigEndian.Uint16(body)) == kerr.UnsupportedVersion.Code {
		version = 0
	}
	answer.Version = version
	if err := answer.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	answer.ApiKeys = narrow(access, answer.ApiKeys)
	return answer, nil
}

// apiVersionsTooNew answers an ApiVersions request of a version above what we
// know: in version 0, with the range that may be asked (KIP-511). The first 8
// bytes are left to the slot.
func apiVersionsTooNew() []byte {
	limit := apiLimits[int16(kmsg.ApiVersions)]
	answer := kmsg.NewPtrApiVersionsResponse()
	answer.ErrorCode = kafkaCode(errUnsupportedVersion)
	answer.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{
		ApiKey: int16(kmsg.ApiVersions), MinVersion: limit.min, MaxVersion: limit.max,
	}}
	return answer.AppendTo(make([]byte, 8))
}

// oldHandshake answers SaslHandshake v0: no mechanism may be used that way.
func oldHandshake() []byte {
	answer := kmsg.NewPtrSASLHandshakeResponse()
	answer.ErrorCode = kafkaCode(errOldHandshake)
	return answer.AppendTo(make([]byte, 8))
}
