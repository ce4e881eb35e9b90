package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const maxPort = 65535

// topicName is what Kafka takes for one, but for '.' and '..'.
var topicName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,248}$`)

// address reads a host:port to listen on into dst.
func (r *resolver) address(v Value, path string, dst *string) {
	if !v.given {
		return
	}
	if _, _, err := splitAddress(v.text); err != nil {
		r.wrong(v, path, "%v", err)
		return
	}
	*dst = v.text
}

// yesOrNo reads true or false into dst.
func (r *resolver) yesOrNo(v Value, path string, dst *bool) {
	switch {
	case !v.given:
	case v.text == "true", v.text == "false":
		*dst = v.text == "true"
	default:
		r.wrong(v, path, "%q is neither true nor false", v.text)
	}
}

// duration reads a length of time within bounds; without one it gives the
// default.
func (r *resolver) duration(v Value, path string, missing, least, most time.Duration) time.Duration {
	if !v.given {
		return missing
	}
	d, err := time.ParseDuration(v.text)
	switch {
	case err != nil && isNumber(v.text):
		r.wrong(v, path, "%s has no unit: write %ss or %sms", v.text, v.text, v.text)
	case err != nil:
		r.wrong(v, path, "%q is not a length of time, such as 500ms, 60s, 10m or 24h", v.text)
	case d < least || d > most:
		r.wrong(v, path, "%s is outside %s to %s", v.text, duration(least), duration(most))
	default:
		return d
	}
	return missing
}

// size reads a number of bytes within bounds.
func (r *resolver) size(v Value, path string, missing, least, most int) int {
	if !v.given {
		return missing
	}
	n, err := parseSize(v.text)
	switch {
	case err != nil:
		r.wrong(v, path, "%v", err)
	case most == math.MaxInt32 && n > int64(most):
		r.wrong(v, path, "%s is too much: it must be less than 2GiB", v.text)
	case most == math.MaxInt32 && n < int64(least):
		r.wrong(v, path, "%s is too little: %s at least", v.text, size(least))
	case n < int64(least) || n > int64(most):
		r.wrong(v, path, "%s is outside %s to %s", v.text, size(least), size(most))
	default:
		return int(n)
	}
	return missing
}

// count reads a whole number within bounds.
func (r *resolver) count(v Value, path string, missing, least, most int) int {
	if !v.given {
		return missing
	}
	n, err := strconv.Atoi(strings.ReplaceAll(v.text, "_", ""))
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		r.wrong(v, path, "%q is not a whole number", v.text)
	case err != nil || n < least || n > most:
		r.wrong(v, path, "%s is outside %d to %d", v.text, least, most)
	default:
		return n
	}
	return missing
}

func parseSize(s string) (int64, error) {
	number := strings.TrimRight(s, "BKMGTkmgtib")
	unit := int64(1)
	switch s[len(number):] {
	case "", "B":
	case "KiB":
		unit = kib
	case "MiB":
		unit = mib
	case "GiB":
		unit = gib
	default:
		return 0, fmt.Errorf("%q is not a size: units are B, KiB, MiB and GiB, as in 100MiB", s)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n < 0 || n > 1<<40/unit {
		return 0, fmt.Errorf("%q is not a size, such as 512KiB or 100MiB", s)
	}
	return n * unit, nil
}

func parseRange(s string) (first, last int, err error) {
	a, b, ok := strings.Cut(s, "-")
	first, errFirst := strconv.Atoi(strings.TrimSpace(a))
	last, errLast := strconv.Atoi(strings.TrimSpace(b))
	switch {
	case !ok || errFirst != nil || errLast != nil:
		return 0, 0, fmt.Errorf("%q is not a range of ports, such as 9093-9192", s)
	case first < 1 || last > maxPort:
		return 0, 0, fmt.Errorf("%q: ports go from 1 to %d", s, maxPort)
	case first > last:
		return 0, 0, fmt.Errorf("%q: the first port is above the last", s)
	}
	return first, last, nil
}

// parseID reads a producer id, decimal or hexadecimal.
func parseID(s string) (int64, error) {
	id, err := strconv.ParseInt(s, 0, 64)
	if err != nil || id <= 0 {
		return 0, fmt.Errorf("%q is not a producer id: a positive 64-bit number, decimal or 0x…", s)
	}
	return id, nil
}

func splitAddress(s string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not host:port", s)
	}
	port, err = strconv.Atoi(text)
	if err != nil || port < 0 || port > maxPort {
		return "", 0, fmt.Errorf("%q: ports go from 0 to %d", s, maxPort)
	}
	if host != "" && !isHost(host) {
		return "", 0, fmt.Errorf("%q: %q is not a host name or an IP address", s, host)
	}
	return host, port, nil
}

// portOf gives the port of an address that was checked, 0 when there is none.
func portOf(address string) int {
	_, port, err := splitAddress(address)
	if err != nil {
		return 0
	}
	return port
}

func isHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	return s != "" && len(s) <= 253 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == "" &&
		!strings.HasPrefix(s, "-")
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

// duration writes a length of time without zero parts: 10m, not 10m0s.
func duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// size writes a number of bytes in the largest unit that divides it.
func size(n int) string {
	for _, u := range []struct {
		name string
		unit int
	}{{"GiB", gib}, {"MiB", mib}, {"KiB", kib}} {
		if n >= u.unit && n%u.unit == 0 {
			return strconv.Itoa(n/u.unit) + u.name
		}
	}
	return strconv.Itoa(n) + "B"
}
