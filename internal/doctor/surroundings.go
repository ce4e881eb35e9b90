package doctor

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/offsetproxy/offsetproxy/internal/resources"
	"github.com/offsetproxy/offsetproxy/internal/tlsfiles"
	"github.com/offsetproxy/offsetproxy/proxy"
)

// bootstrapNode stands for the bootstrap among the nodes of an Address.
const bootstrapNode = -1

// judgeAddresses: what clients would be told.
func (j *judge) judgeAddresses() {
	brokers := map[string]int32{} // ip:port of each
	for _, b := range j.Brokers {
		_, port, err := net.SplitHostPort(b.Address)
		if err != nil {
			continue
		}
		for _, ip := range b.IPs {
			brokers[net.JoinHostPort(ip, port)] = b.Node
		}
	}
	var unresolved []Address // of the listener before
	tell := func() {
		if len(unresolved) > 0 {
			j.unresolved(unresolved)
			unresolved = nil
		}
	}
	for _, a := range j.Addresses {
		if len(unresolved) > 0 && unresolved[0].Listener != a.Listener {
			tell()
		}
		if a.Failed.Failed() {
			unresolved = append(unresolved, a)
			continue
		}
		j.judgeAddress(a, brokers)
	}
	tell()
	j.good(AdvertisedAddress, "listeners", "hosts that clients are told resolve here, and are no broker's own")
	for _, l := range j.Settings.Proxy.AllListeners() {
		if l.ServerNames != nil {
			continue
		}
		for _, b := range j.Brokers {
			if _, served := l.BrokerPort(b.Node); !served {
				j.find(BrokerHidden, Error, b.subject(), "listener %s has no port for node id %d (broker_ports %d-%d): clients do not see the broker", l.Name, b.Node, l.BrokerPorts.First, l.BrokerPorts.Last)
			}
		}
	}
	if len(j.Brokers) > 0 {
		j.good(BrokerHidden, "listeners", "each broker has a port")
	}
}

// unresolved tells of all hosts of a listener that do not resolve.
func (j *judge) unresolved(all []Address) {
	subject := "listener " + all[0].Listener
	if len(all) == 1 {
		j.find(AdvertisedAddress, Warning, subject, "clients are told the host %s, which does not resolve here: %s", all[0].Host, all[0].Failed.Text)
		return
	}
	var hosts []string
	for _, a := range all {
		hosts = append(hosts, a.Host)
	}
	j.find(AdvertisedAddress, Warning, subject, "clients are told the hosts %s, which do not resolve here: %s", listed(hosts), all[0].Failed.Text)
}

// judgeAddress: one host that resolves.
func (j *judge) judgeAddress(a Address, brokers map[string]int32) {
	subject := "listener " + a.Listener
	for _, ip := range a.IPs {
		switch {
		case proxy.IsUnspecifiedHost(ip):
			j.find(AdvertisedAddress, Error, subject, "clients are told the host %s, which is no address to connect to", a.Host)
			return
		case proxy.IsLoopbackHost(ip):
			j.findAnd(AdvertisedAddress, Note, subject, "Nothing, if clients run on the proxy's machine or in its pod; else set advertised_host.",
				"clients are told the host %s, which is the machine that they run on", a.Host)
		}
		for _, node := range slices.Sorted(maps.Keys(a.Nodes)) {
			if port := a.Nodes[node]; port != 0 {
				if own, clash := brokers[net.JoinHostPort(ip, strconv.Itoa(port))]; clash {
					what := fmt.Sprintf("broker %d", node)
					if node == bootstrapNode {
						what = "the bootstrap"
					}
					j.find(AdvertisedAddress, Error, subject, "clients are told %s for %s, where broker %d itself is: they go around the proxy", net.JoinHostPort(a.Host, strconv.Itoa(port)), what, own)
				}
			}
		}
		if proxy.IsLoopbackHost(ip) {
			return // once is enough for all of its addresses
		}
	}
}

// judgeFiles: the password, certificates in files, and those that brokers show.
func (j *judge) judgeFiles() {
	if j.PasswordFailed.Failed() {
		j.find(Password, Error, "upstream.sasl", "%s", j.PasswordFailed.Text)
	} else if j.Settings.Proxy.Credentials.Mechanism != proxy.NoLogin {
		j.find(Password, OK, "upstream.sasl", "it can be read")
	}
	looked := 0
	for _, f := range j.Files {
		subject := "certificates of " + f.Side
		looked++
		if f.Failed.Failed() {
			j.findAnd(Certificate, Error, subject, "Mend the files: serve does not start with them.", "they cannot be used: %s", f.Failed.Text)
			continue
		}
		j.expires(subject, f.Expires)
		if len(f.Uncovered) > 0 {
			j.findAnd(Certificate, Error, subject, "Have it issued for these names too, and put it in the place of the old one: proxies read it again when it changes.", "clients that check it are locked out: it is not good for %s, which they are told", listed(f.Uncovered))
		}
	}
	for _, b := range j.answering() {
		if !b.Expires.IsZero() {
			looked++
			j.expires("certificate of "+b.subject(), b.Expires)
		}
	}
	if looked > 0 {
		j.good(Certificate, "certificates", "%s, none of which expires within %d days", counted(looked, "side was looked at", "sides were looked at"), int(tlsfiles.ExpiresSoon/(24*time.Hour)))
	}
	for _, note := range j.Settings.Notes {
		j.find(SettingsNote, Note, "configuration", "%s", note)
	}
	j.good(SettingsNote, "configuration", "nothing to note")
}

func (j *judge) expires(subject string, at time.Time) {
	left := at.Sub(j.At)
	switch when := at.UTC().Format(time.RFC3339); {
	case at.IsZero() || left >= tlsfiles.ExpiresSoon:
	case left <= 0:
		j.find(Certificate, Error, subject, "it has expired, at %s", when)
	default:
		j.find(Certificate, Warning, subject, "it expires at %s, in %s", when, left.Round(time.Hour))
	}
}

// judgeProcess holds what the process is given against the settings.
func (j *judge) judgeProcess() {
	const subject = "this process"
	needs := resources.Needed(&j.Settings.Proxy, j.Settings.UpstreamTLS != nil)
	if j.Given.Descriptors == 0 || j.Given.Memory == 0 {
		j.findAnd(Resources, Note, subject, "See yourself that they suffice.", "how many descriptors it may open, or how much memory it gets, cannot be seen here, or has no limit")
	}
	for _, shortage := range resources.Shortages(j.Given, needs) {
		j.find(Resources, Warning, subject, "%s", shortage)
	}
	j.good(Resources, subject, "%d descriptors for the %d that limits allow clients to use, and %d MiB of memory for %d", j.Given.Descriptors, needs.Descriptors, j.Given.Memory>>20, needs.Memory()>>20)
}
