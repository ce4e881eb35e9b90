package wire

// FirstHeader gives the value of a header of the first record of the batch that Inspect
// has read last, whatever came of that: the first one of that name. It is nil if there
// is none, or no such record. It aliases the batch, or what the Inspector keeps, and is
// valid until the next Inspect or Shrink. It allocates nothing.
func (in *Inspector) FirstHeader(name string) []byte {
	b := in.payload
	length, at, _ := readVarint(b, 0)
	if at < 0 || length < 0 || int(length) > len(b)-at {
		return nil
	}
	b = b[:at+int(length)]
	if _, at = readVarlong(b, at+1); at < 0 { // behind the attributes: the timestamp delta
		return nil
	}
	if _, at, _ = readVarint(b, at); at < 0 { // offset delta
		return nil
	}
	for range 2 { // key and value
		if _, at, _ = readNullable(b, at); at < 0 {
			return nil
		}
	}
	count, at, _ := readVarint(b, at)
	if at < 0 || count < 0 || int(count) > (len(b)-at)/2 { // a header takes two bytes at least
		return nil
	}
	for range count {
		var key, value []byte
		if key, at, _ = readNullable(b, at); at < 0 {
			return nil
		}
		if value, at, _ = readNullable(b, at); at < 0 {
			return nil
		}
		if string(key) == name {
			return value
		}
	}
	return nil
}
