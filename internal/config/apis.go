package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/offsetproxy/offsetproxy/proxy"
)

// apis understands a list of APIs, by name or by number.
func (r *resolver) apis(vs Values, path string) []int16 {
	var keys []int16
	for i, v := range vs {
		at := fmt.Sprintf("%s[%d]", path, i)
		key, known := apiKey(v.text)
		switch {
		case !known:
			r.wrong(v, at, "%q is not an API of Kafka; Fetch and CreateTopics are, and so are the numbers of API keys", v.text)
		case strings.HasSuffix(path, "deny_apis") && proxy.NeedsAPI(key):
			r.wrong(v, at, "no client could connect without %s", kmsg.NameForKey(key))
		default:
			keys = append(keys, key)
		}
	}
	return keys
}

// apiKey gives the key of a name, in any case, or of a number.
func apiKey(s string) (int16, bool) {
	if n, err := strconv.ParseInt(s, 10, 16); err == nil {
		return int16(n), n >= 0
	}
	for key := range int16(kmsg.MaxKey + 1) {
		if kmsg.RequestForKey(key) != nil && strings.EqualFold(kmsg.NameForKey(key), s) {
			return key, true
		}
	}
	return 0, false
}

// apiNames are the names of keys, or their numbers if they have none.
func apiNames(keys []int16) []string {
	var names []string
	for _, key := range keys {
		if kmsg.RequestForKey(key) == nil {
			names = append(names, strconv.Itoa(int(key)))
			continue
		}
		names = append(names, kmsg.NameForKey(key))
	}
	return names
}
