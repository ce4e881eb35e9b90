package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrShortHeader says that a request or answer ends before its header does, or that a
// length in the header points beyond the frame.
var ErrShortHeader = errors.New("wire: header is truncated")

// fixedHeader is api key, api version and correlation id: what all versions
// of the request header begin with.
const fixedHeader = 8

// RequestHeader is the header of a request frame.
type RequestHeader struct {
	APIKey        int16
	APIVersion    int16
	CorrelationID int32
	// ClientID aliases the frame; nil if null, or if BodyOffset is −1.
	ClientID []byte
	// BodyOffset is where the body begins in the frame (without its length
	// bytes). It is −1 for api keys and versions we do not know, of which
	// only the fixed part is read.
	BodyOffset int
}

// ParseRequestHeader reads the header of a request. The frame comes without
// its 4 length bytes. Header v1 or v2 (with tagged fields, KIP-482) follows
// from api key and version; ControlledShutdown v0 has the older v0. Nothing
// is allocated. The error is ErrShortHeader, wrapped.
func ParseRequestHeader(frame []byte) (RequestHeader, error) {
	if len(frame) < fixedHeader {
		return RequestHeader{}, fmt.Errorf("%w: %d bytes", ErrShortHeader, len(frame))
	}
	h := RequestHeader{
		APIKey:        int16(binary.BigEndian.Uint16(frame)),
		APIVersion:    int16(binary.BigEndian.Uint16(frame[2:])),
		CorrelationID: int32(binary.BigEndian.Uint32(frame[4:])),
		BodyOffset:    -1,
	}
	if h.APIKey < 0 || int(h.APIKey) >= len(apis) {
		return h, nil
	}
	api := apis[h.APIKey]
	if h.APIVersion < 0 || h.APIVersion > api.maxVersion {
		return h, nil
	}
	if h.APIKey == int16(kmsg.ControlledShutdown) && h.APIVersion == 0 {
		h.BodyOffset = fixedHeader
		return h, nil
	}
	rest, ok := h.clientID(frame[fixedHeader:])
	if ok && h.APIVersion >= api.flexibleFrom {
		rest, ok = SkipTags(rest)
	}
	if !ok {
		return h, fmt.Errorf("%w: api key %d version %d", ErrShortHeader, h.APIKey, h.APIVersion)
	}
	h.BodyOffset = len(frame) - len(rest)
	return h, nil
}

// clientID reads the nullable string with a 16-bit length that all header
// versions from v1 on have there, the flexible one too.
func (h *RequestHeader) clientID(src []byte) (rest []byte, ok bool) {
	if len(src) < 2 {
		return nil, false
	}
	n := int(int16(binary.BigEndian.Uint16(src)))
	src = src[2:]
	if n == -1 {
		return src, true
	}
	if n < 0 || n > len(src) {
		return nil, false
	}
	h.ClientID = src[:n:n]
	return src[n:], true
}

// SkipTags skips a section of tagged fields (KIP-482) at the front of src; false
// if src ends within it.
func SkipTags(src []byte) (rest []byte, ok bool) {
	count, n := binary.Uvarint(src)
	if n <= 0 {
		return nil, false
	}
	src = src[n:]
	for ; count > 0; count-- {
		if _, n = binary.Uvarint(src); n <= 0 {
			return nil, false
		}
		src = src[n:]
		size, n := binary.Uvarint(src)
		if n <= 0 || size > uint64(len(src)-n) {
			return nil, false
		}
		src = src[n+int(size):]
	}
	return src, true
}

// ProduceAcks reads acks from a Produce request (versions 0–13), given as the
// frame without its 4 length bytes that the header was parsed from. From version 3 on
// acks stands behind the transactional id (KIP-98), whose length is compact from
// version 9 on. The error is ErrShortHeader, wrapped, also if the frame is no Produce
// request of a version we know.
func (h RequestHeader) ProduceAcks(frame []byte) (int16, error) {
	if h.APIKey != int16(kmsg.Produce) || h.BodyOffset < 0 {
		return 0, fmt.Errorf("%w: no Produce request of a known version", ErrShortHeader)
	}
	body := frame[h.BodyOffset:]
	skip := 0
	switch {
	case h.APIVersion >= 9:
		size, n := binary.Uvarint(body)
		if n <= 0 || size > uint64(len(body)) {
			return 0, fmt.Errorf("%w: transactional id", ErrShortHeader)
		}
		skip = n + max(0, int(size)-1)
	case h.APIVersion >= 3:
		if len(body) < 2 {
			return 0, fmt.Errorf("%w: transactional id", ErrShortHeader)
		}
		size := int(int16(binary.BigEndian.Uint16(body)))
		// Any negative length is null, as brokers read it.
		skip = 2 + max(0, size)
	}
	if len(body) < skip+2 {
		return 0, fmt.Errorf("%w: acks", ErrShortHeader)
	}
	return int16(binary.BigEndian.Uint16(body[skip:])), nil
}

// SetCorrelationID overwrites the correlation id of a request (a frame
// without its 4 length bytes, at least 8 bytes).
func SetCorrelationID(request []byte, id int32) {
	binary.BigEndian.PutUint32(request[4:], uint32(id))
}

// CorrelationID reads the correlation id of an answer (a frame without its 4
// length bytes, at least 4 bytes). A request's is in its RequestHeader.
func CorrelationID(answer []byte) int32 {
	return int32(binary.BigEndian.Uint32(answer))
}

// SetAnswerCorrelationID overwrites the correlation id of an answer (a frame
// without its 4 length bytes, at least 4 bytes).
func SetAnswerCorrelationID(answer []byte, id int32) {
	binary.BigEndian.PutUint32(answer, uint32(id))
}

// FlexibleAnswer reports whether answers to this api key and version have a
// header with tagged fields (response header v1). ApiVersions answers never
// have (KIP-511). It is false for what we do not know.
func FlexibleAnswer(apiKey, apiVersion int16) bool {
	if apiKey == int16(kmsg.ApiVersions) || apiKey < 0 || int(apiKey) >= len(apis) {
		return false
	}
	api := apis[apiKey]
	return apiVersion >= api.flexibleFrom && apiVersion <= api.maxVersion
}

// AnswerBodyOffset gives where the body begins in an answer (a frame without
// its 4 length bytes) to a request of this api key and version: behind the
// correlation id and, if FlexibleAnswer, behind tagged fields. The error is
// ErrShortHeader, wrapped.
func AnswerBodyOffset(answer []byte, apiKey, apiVersion int16) (int, error) {
	if len(answer) < 4 {
		return 0, fmt.Errorf("%w: answer of %d bytes", ErrShortHeader, len(answer))
	}
	if !FlexibleAnswer(apiKey, apiVersion) {
		return 4, nil
	}
	rest, ok := SkipTags(answer[4:])
	if !ok {
		return 0, fmt.Errorf("%w: answer to api key %d version %d", ErrShortHeader, apiKey, apiVersion)
	}
	return len(answer) - len(rest), nil
}

// api says what the header needs to know of an api key.
type api struct {
	maxVersion   int16 // −1: unknown key
	flexibleFrom int16
}

// apis is indexed by api key and taken from the message definitions, so that
// it cannot disagree with the bodies' codec.
var apis = func() [kmsg.MaxKey + 1]api {
	var table [kmsg.MaxKey + 1]api
	for key := range table {
		table[key] = api{maxVersion: -1}
		request := kmsg.RequestForKey(int16(key))
		if request == nil {
			continue
		}
		newest := request.MaxVersion()
		flexible := newest + 1
		for v := newest; v >= 0; v-- {
			request.SetVersion(v)
			if !request.IsFlexible() {
				break
			}
			flexible = v
		}
		table[key] = api{maxVersion: newest, flexibleFrom: flexible}
	}
	return table
}()
