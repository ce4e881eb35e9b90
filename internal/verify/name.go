package verify

import (
	"strconv"
	"strings"
)

// namePrefix begins the value of every record.
const namePrefix = "verify/"

// appendName appends the value of a record: "verify/RUN/writer/append/place".
func appendName(dst []byte, run string, id RecordID) []byte {
	dst = append(dst, namePrefix...)
	dst = append(dst, run...)
	return appendShortName(append(dst, '/'), id)
}

// appendShortName appends what the history calls a record: "writer/append/place".
func appendShortName(dst []byte, id RecordID) []byte {
	dst = append(strconv.AppendInt(dst, int64(id.Append.Writer), 10), '/')
	dst = append(strconv.AppendInt(dst, int64(id.Append.Number), 10), '/')
	return strconv.AppendInt(dst, int64(id.Place), 10)
}

// parseName is the reverse of appendName; false: not a name of this run.
func parseName(value, run string) (RecordID, bool) {
	rest, ok := strings.CutPrefix(value, namePrefix)
	if ok {
		rest, ok = strings.CutPrefix(rest, run+"/")
	}
	if !ok {
		return RecordID{}, false
	}
	return parseShortName(rest)
}

// parseShortName is the reverse of appendShortName.
func parseShortName(name string) (RecordID, bool) {
	writer, rest, ok := strings.Cut(name, "/")
	number, place, more := strings.Cut(rest, "/")
	w, badWriter := strconv.ParseUint(writer, 10, 31)
	n, badNumber := strconv.ParseUint(number, 10, 31)
	p, badPlace := strconv.ParseUint(place, 10, 16)
	if !ok || !more || badWriter != nil || badNumber != nil || badPlace != nil {
		return RecordID{}, false
	}
	return RecordID{AppendID{int32(w), AppendNumber(n)}, uint16(p)}, true
}
