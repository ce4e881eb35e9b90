package proxy

import (
	"fmt"

	"github.com/offsetproxy/offsetproxy/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// noNode is how the protocol says that there is no broker.
const noNode int32 = -1

// produceEndpoints is the first version of Produce whose answers may bear
// addresses (KIP-951).
const produceEndpoints = 10

// bearsAddresses reports whether an answer must be read whole, because it may
// tell of brokers' addresses or, for ApiVersions, of versions.
func bearsAddresses(key, version int16) bool {
	switch kmsg.Key(key) {
	case kmsg.ApiVersions, kmsg.Metadata, kmsg.FindCoordinator, kmsg.DescribeCluster,
		kmsg.ShareFetch, kmsg.ShareAcknowledge:
		return true
	case kmsg.Produce:
		return version >= produceEndpoints
	}
	return false
}

// rewriteAnswer replaces what bearsAddresses is about in a whole answer frame
// (with its length bytes). It returns a frame of its own, whose first 8 bytes
// are left to the slot, or nil if the answer may pass as it is. An error
// means that the answer could not be read, so must not pass.
func (p *Proxy) rewriteAnswer(e *entrance, key, version int16, frame []byte) ([]byte, error) {
	offset, err := wire.AnswerBodyOffset(frame[4:], key, version)
	if err != nil {
		return nil, err
	}
	body := frame[4+offset:]
	if kmsg.Key(key) == kmsg.Produce && !mayBearEndpoints(body, version) {
		return nil, nil
	}
	answer, err := p.rewriteBody(e, key, version, body)
	if err != nil {
		return nil, err
	}
	rewritten := append(make([]byte, 0, len(frame)+len(frame)/8), frame[:4+offset]...)
	return answer.AppendTo(rewritten), nil
}

// mayBearEndpoints reports whether the body of a Produce answer has tagged fields
// where KIP-951 put new leaders and addresses. Nearly no answer has, so this walk
// spares decoding it. What cannot be walked may bear anything.
func mayBearEndpoints(body []byte, version int16) bool {
	var answer wire.ProduceAnswer
	return answer.Parse(body, version) != nil || answer.Tagged
}

func (p *Proxy) rewriteBody(e *entrance, key, version int16, body []byte) (kmsg.Response, error) {
	if kmsg.Key(key) == kmsg.ApiVersions {
		answer, err := narrowAnswer(&e.Access, version, body)
		// An error's only key tells which version to ask for; clients take more than
		// that for all that the broker has (KIP-511).
		if err == nil && e.Login != nil && answer.ErrorCode == 0 {
			answer.ApiKeys = withLogin(answer.ApiKeys)
		}
		return answer, err
	}
	answer := kmsg.ResponseForKey(key)
	answer.SetVersion(version)
	if err := answer.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	switch answer := answer.(type) {
	case *kmsg.MetadataResponse:
		p.rewriteMetadata(e, answer)
	case *kmsg.FindCoordinatorResponse:
		p.rewriteFindCoordinator(e, answer)
	case *kmsg.DescribeClusterResponse:
		p.rewriteDescribeCluster(e, answer)
	case *kmsg.ProduceResponse:
		p.rewriteProduce(e, answer)
	case *kmsg.ShareFetchResponse:
		p.rewriteShareFetch(e, answer)
	case *kmsg.ShareAcknowledgeResponse:
		p.rewriteShareAcknowledge(e, answer)
	}
	return answer, nil
}

// replace puts the address that clients of an entrance are told of a node in the
// place of the upstream one; false if the node has none and must be left out.
func (p *Proxy) replace(e *entrance, node int32, host *string, port *int32) bool {
	b, ok := p.topology.learn(node, *host, *port)
	at, served := b.atEntrance(e)
	if !ok || !served {
		p.metrics.unmapped.Add(1)
		return false
	}
	*host, *port = at.host, at.port
	return true
}

// known reports whether clients of an entrance can reach a node through the proxy.
func (p *Proxy) known(e *entrance, node int32) bool {
	_, ok := p.topology.told(e, node)
	return ok
}

// rewriteMetadata leaves no id of a leader or controller whose broker is
// hidden: clients would look for it again and again. What a broker says of a
// leader without a listener is said instead.
func (p *Proxy) rewriteMetadata(e *entrance, m *kmsg.MetadataResponse) {
	p.fencing.topics.learnNames(m)
	kept := m.Brokers[:0]
	hidden := false
	for _, b := range m.Brokers {
		if p.replace(e, b.NodeID, &b.Host, &b.Port) {
			kept = append(kept, b)
		} else {
			hidden = true
		}
	}
	m.Brokers = kept
	if !hidden {
		return
	}
	if !p.known(e, m.ControllerID) {
		m.ControllerID = noNode
	}
	noLeader := kerr.LeaderNotAvailable.Code
	if m.Version >= 6 {
		noLeader = kerr.ListenerNotFound.Code
	}
	for i := range m.Topics {
		for j := range m.Topics[i].Partitions {
			partition := &m.Topics[i].Partitions[j]
			if partition.Leader == noNode || p.known(e, partition.Leader) {
				continue
			}
			partition.Leader = noNode
			if partition.ErrorCode == 0 {
				partition.ErrorCode = noLeader
			}
		}
	}
}

// rewriteFindCoordinator: a coordinator that is hidden is not available.
func (p *Proxy) rewriteFindCoordinator(e *entrance, f *kmsg.FindCoordinatorResponse) {
	if f.Version < 4 {
		p.rewriteCoordinator(e, &f.NodeID, &f.Host, &f.Port, &f.ErrorCode)
		return
	}
	for i := range f.Coordinators {
		c := &f.Coordinators[i]
		p.rewriteCoordinator(e, &c.NodeID, &c.Host, &c.Port, &c.ErrorCode)
	}
}

func (p *Proxy) rewriteCoordinator(e *entrance, node *int32, host *string, port *int32, code *int16) {
	if *node >= 0 && p.replace(e, *node, host, port) {
		return
	}
	if *node >= 0 && *code == 0 {
		*code = kerr.CoordinatorNotAvailable.Code
	}
	*node, *host, *port = noNode, "", -1
}

// Kinds of endpoints in DescribeCluster (KIP-919).
const brokerEndpoints = 1

// rewriteDescribeCluster leaves controllers out: the proxy has no ports for
// them.
func (p *Proxy) rewriteDescribeCluster(e *entrance, d *kmsg.DescribeClusterResponse) {
	kept := d.Brokers[:0]
	if d.EndpointType == brokerEndpoints {
		for _, b := range d.Brokers {
			if p.replace(e, b.NodeID, &b.Host, &b.Port) {
				kept = append(kept, b)
			}
		}
	}
	hidden := len(kept) < len(d.Brokers)
	d.Brokers = kept
	if hidden && (d.EndpointType != brokerEndpoints || !p.known(e, d.ControllerID)) {
		d.ControllerID = noNode
	}
}

// The answers of KIP-951 name a partition's new leader and, beside, where it
// is. A leader without a place would make clients go round in circles, so it
// is taken back: then they ask for Metadata.

func (p *Proxy) rewriteProduce(e *entrance, r *kmsg.ProduceResponse) {
	kept := r.Brokers[:0]
	for _, b := range r.Brokers {
		if p.replace(e, b.NodeID, &b.Host, &b.Port) {
			kept = append(kept, b)
		}
	}
	r.Brokers = kept
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			leader := &r.Topics[i].Partitions[j].CurrentLeader
			if !p.known(e, leader.LeaderID) {
				leader.LeaderID, leader.LeaderEpoch = noNode, -1
			}
		}
	}
}

func (p *Proxy) rewriteShareFetch(e *entrance, r *kmsg.ShareFetchResponse) {
	kept := r.NodeEndpoints[:0]
	for _, b := range r.NodeEndpoints {
		if p.replace(e, b.NodeID, &b.Host, &b.Port) {
			kept = append(kept, b)
		}
	}
	hidden := len(kept) < len(r.NodeEndpoints)
	r.NodeEndpoints = kept
	if !hidden {
		return
	}
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			leader := &r.Topics[i].Partitions[j].CurrentLeader
			if !p.known(e, leader.LeaderID) {
				leader.LeaderID, leader.LeaderEpoch = noNode, -1
			}
		}
	}
}

func (p *Proxy) rewriteShareAcknowledge(e *entrance, r *kmsg.ShareAcknowledgeResponse) {
	kept := r.NodeEndpoints[:0]
	for _, b := range r.NodeEndpoints {
		if p.replace(e, b.NodeID, &b.Host, &b.Port) {
			kept = append(kept, b)
		}
	}
	hidden := len(kept) < len(r.NodeEndpoints)
	r.NodeEndpoints = kept
	if !hidden {
		return
	}
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			leader := &r.Topics[i].Partitions[j].CurrentLeader
			if !p.known(e, leader.LeaderID) {
				leader.LeaderID, leader.LeaderEpoch = noNode, -1
			}
		}
	}
}
