package proxy

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// librdkafka logs in only where it is told of SaslHandshake v0, which it does not use
// where there is v1.
func TestClientsAreToldOfTheOldHandshake(t *testing.T) {
	told := []kmsg.ApiVersionsResponseApiKey{{ApiKey: int16(kmsg.SASLHandshake), MaxVersion: 1}}
	for name, keys := range map[string][]kmsg.ApiVersionsResponseApiKey{
		"passed through":          narrow(&Access{}, append([]kmsg.ApiVersionsResponseApiKey{}, told...)),
		"at the proxy":            withLogin(narrow(&Access{}, append([]kmsg.ApiVersionsResponseApiKey{}, told...))),
		"at the proxy, by itself": withLogin(nil),
	} {
		if len(keys) == 0 || keys[0].MinVersion != 0 || keys[0].MaxVersion != 1 {
			t.Errorf("%s: got %+v, want versions 0 to 1", name, keys)
		}
	}
	if err := checkVersion(int16(kmsg.SASLHandshake), 0); err == nil {
		t.Error("version 0 is not refused")
	}
}
