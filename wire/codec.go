package wire

// Decompress decompresses a batch's records.
func Decompress(dst []byte, codec int8, src []byte, max int) ([]byte, error) { panic("not yet") }
