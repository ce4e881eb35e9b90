package doctor

import (
	"slices"
	"strings"
	"testing"
)

// TestRemediesCanBePasted: commands name the cluster's addresses, the proxy's principal and
// the topic; several topics have one remedy together.
func TestRemediesCanBePasted(t *testing.T) {
	f := healthy(t, plainRules)
	for i := range 2 {
		f.Topics[i].Configs[settingUnclean] = new("true")
	}
	f.ClusterRights.Bits = 0
	var unclean []Finding
	for _, found := range Judge(f).Findings {
		for _, placeholder := range []string{"BROKERS", "PRINCIPAL", "NAME"} {
			if strings.Contains(found.Do, placeholder) {
				t.Errorf("%s about %s has %s in %q", found.ID, found.Subject, placeholder, found.Do)
			}
		}
		if found.ID == TopicUnclean {
			unclean = append(unclean, found)
		}
	}
	if len(unclean) != 2 || !unclean[0].Like(unclean[1]) || !strings.Contains(unclean[0].DoForAny(), "--alter --topic NAME --add-config") {
		t.Fatalf("got %+v", unclean)
	}
	const want = "kafka-configs.sh --bootstrap-server k-1:9092,k-2:9092 --alter --topic orders --add-config unclean.leader.election.enable=false"
	if unclean[0].Do != want && unclean[1].Do != want {
		t.Errorf("got %q, want %q", unclean[0].Do, want)
	}
}

// TestHostsThatDoNotResolveAreToldOnce for each listener.
func TestHostsThatDoNotResolveAreToldOnce(t *testing.T) {
	f := healthy(t, plainRules)
	f.Addresses = nil
	for _, host := range []string{"kafka.test", "broker-1.kafka.test"} {
		f.Addresses = append(f.Addresses, Address{Listener: "a", Host: host, Failed: unseen})
	}
	f.Addresses = append(f.Addresses, Address{Listener: "b", Host: "other.test", Failed: unseen})
	var got []string
	for _, found := range Judge(f).Findings {
		if found.ID == AdvertisedAddress {
			got = append(got, found.Subject+": "+found.Seen)
		}
	}
	want := []string{
		"listener a: clients are told the hosts kafka.test, broker-1.kafka.test, which do not resolve here: no answer in time",
		"listener b: clients are told the host other.test, which does not resolve here: no answer in time",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
