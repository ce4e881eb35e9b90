package proxy

// ring is a first-in first-out queue that grows and is then reused. The zero
// value is empty and ready. Not safe for concurrent use.
type ring[T any] struct {
	buf  []T // length is zero or a power of two
	head int
	n    int
}

func (r *ring[T]) len() int { return r.n }

// at returns the i-th element from the front; i must be below len.
func (r *ring[T]) at(i int) T { return r.buf[(r.head+i)&(len(r.buf)-1)] }

func (r *ring[T]) push(v T) {
	if r.n == len(r.buf) {
		grown := make([]T, max(8, 2*len(r.buf)))
		for i := range r.n {
			grown[i] = r.at(i)
		}
		r.buf, r.head = grown, 0
	}
	r.buf[(r.head+r.n)&(len(r.buf)-1)] = v
	r.n++
}

// pop removes the front; the ring must not be empty.
func (r *ring[T]) pop() T {
	var zero T
	v := r.buf[r.head]
	r.buf[r.head] = zero
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return v
}
