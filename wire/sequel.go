package wire

// sequel is what the headers of a batch's next record look like, if it is
// conditional as nearly all are: with one header, an offset in decimal that is one more
// than that of the record before. To compare with that is less work than to read.
type sequel struct {
	headers []byte // as they are encoded; empty: nothing is foretold
	digits  int    // the last of headers
}

// begin foretells from a record's headers, which are well formed and canonical, and end
// with the value of the only one. Where counting would take another
// digit, or the largest offset may be near, it foretells nothing.
func (s *sequel) begin(headers, value []byte) {
	s.forget()
	if len(value) == 0 || len(value) >= 19 {
		return
	}
	for _, c := range value {
		if c < '0' || c > '9' {
			return
		}
	}
	s.headers, s.digits = append(s.headers, headers...), len(value)
	s.advance()
}

// advance foretells the record after the one that was foretold.
func (s *sequel) advance() {
	for i := len(s.headers) - 1; i >= len(s.headers)-s.digits; i-- {
		if s.headers[i] != '9' {
			s.headers[i]++
			return
		}
		s.headers[i] = '0'
	}
	s.forget()
}

func (s *sequel) forget() { s.headers = s.headers[:0] }

// is reports whether these headers are as foretold.
func (s *sequel) is(headers []byte) bool {
	return len(s.headers) > 0 && string(headers) == string(s.headers)
}
