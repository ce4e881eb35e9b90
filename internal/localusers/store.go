package localusers

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Store has the users of one file. Its methods may be called concurrently.
type Store struct {
	path string
	// key tells passwords apart, and makes up what users have who do not exist where the
	// file has no key for that.
	key [32]byte
	// deriving bounds the logins by PLAIN that are worked on at once, so that no
	// flood of them takes all processors. Sent to and received from by each of them.
	deriving chan struct{}

	reloading sync.Mutex // held while the file is read
	inForce   atomic.Pointer[users]
}

// users are those of one content of the file. They do not change.
type users struct {
	byName map[string]*user
	// key makes up what those have who do not exist, and salts passwords. The same key
	// in all proxies has them say the same.
	key []byte
	// models are, by mechanism, what those are like who do not exist; compared is
	// the same of what passwords are compared with.
	models, compared map[Mechanism][]Verifier
}

// user is what is known of one.
type user struct {
	verifiers map[Mechanism]Verifier
	// password tells whether it is the same in another content of the file; zero: the
	// file has verifiers alone.
	password [sha256.Size]byte
}

// Load reads a users file. Its errors name the file and the line and wrap ErrFile if
// the content is wrong.
func Load(path string) (*Store, error) {
	s := &Store{path: path, deriving: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
	_, _ = rand.Read(s.key[:]) // never fails
	if err := s.Reload(); err != nil {
		return nil, err
	}
	return s, nil
}

// Path is the file.
func (s *Store) Path() string { return s.path }

// Len is how many users there are.
func (s *Store) Len() int { return len(s.inForce.Load().byName) }

// Reload reads the file again. After an error the users from before stay.
func (s *Store) Reload() error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	src, err := read(s.path)
	if err != nil {
		return err
	}
	entries, err := parse(src)
	if err != nil {
		return fmt.Errorf("%w %s: %w", ErrFile, s.path, err)
	}
	s.inForce.Store(s.understand(entries, s.inForce.Load()))
	return nil
}

func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	defer func() { _ = file.Close() }()
	src, err := io.ReadAll(io.LimitReader(file, mostFile+1))
	if err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	if len(src) > mostFile {
		return nil, fmt.Errorf("%w %s: more than %d bytes", ErrFile, path, mostFile)
	}
	return src, nil
}

// understand makes users of a file's entries. Verifiers of passwords that have not
// changed are kept: each costs time.
func (s *Store) understand(entries []entry, before *users) *users {
	all := &users{byName: make(map[string]*user, len(entries)), key: s.key[:], models: map[Mechanism][]Verifier{}, compared: map[Mechanism][]Verifier{}}
	entries = slices.DeleteFunc(entries, func(e entry) bool {
		if e.key != nil {
			all.key = e.key
		}
		return e.key != nil
	})
	sameKey := before != nil && bytes.Equal(before.key, all.key)
	for _, e := range entries {
		u := &user{verifiers: e.verifiers}
		if e.password != "" {
			u.password = [sha256.Size]byte(sign(sha256.New, s.key[:], e.name+"\x00"+e.password))
			if sameKey && before.byName[e.name] != nil && before.byName[e.name].password == u.password {
				u.verifiers = before.byName[e.name].verifiers
			} else {
				u.verifiers = map[Mechanism]Verifier{}
				for _, m := range []Mechanism{ScramSHA256, ScramSHA512} {
					u.verifiers[m] = derive(m, e.password, all.salt(m, e.name, saltBytes), LeastIterations)
				}
			}
		}
		all.byName[e.name] = u
		for m, v := range u.verifiers {
			all.models[m] = append(all.models[m], v)
		}
		v, m := u.best()
		all.compared[m] = append(all.compared[m], v)
	}
	return all
}

// best is what a password of the user's is compared with.
func (u *user) best() (Verifier, Mechanism) {
	if v, ok := u.verifiers[ScramSHA512]; ok {
		return v, ScramSHA512
	}
	return u.verifiers[ScramSHA256], ScramSHA256
}

// verifier gives that of a user for a SCRAM mechanism. Who is not known gets one that
// looks like that of a known one, is always the same, and fits no password.
func (s *Store) verifier(m Mechanism, name string) (v Verifier, known bool) {
	all := s.inForce.Load()
	made := all.madeUp(all.models[m], m, name) // for all, so that all take as long
	if u := all.byName[name]; u != nil {
		if v, ok := u.verifiers[m]; ok {
			return v, true
		}
	}
	return made, false
}

// anyVerifier gives one with which a password is compared.
func (s *Store) anyVerifier(name string) (v Verifier, m Mechanism, known bool) {
	all := s.inForce.Load()
	long, short := all.compared[ScramSHA512], all.compared[ScramSHA256]
	m, models := ScramSHA512, long
	if total := len(long) + len(short); total > 0 && all.pick(name, total) >= len(long) {
		m, models = ScramSHA256, short
	}
	made := all.madeUp(models, m, name)
	if u := all.byName[name]; u != nil {
		v, m := u.best()
		return v, m, true
	}
	return made, m, false
}

// madeUp is the verifier of a user who does not exist.
func (u *users) madeUp(models []Verifier, m Mechanism, name string) Verifier {
	size, iterations := saltBytes, LeastIterations
	if len(models) > 0 {
		model := models[u.pick(name, len(models))]
		size, iterations = len(model.Salt), model.Iterations
	}
	h := m.hash()
	return Verifier{
		Salt: u.salt(m, name, size), Iterations: iterations,
		StoredKey: sign(h, u.key, "stored\x00"+string(m)+"\x00"+name),
		ServerKey: sign(h, u.key, "server\x00"+string(m)+"\x00"+name),
	}
}

// salt is that of a user whose file has none: the same whether there is such a user or
// not. It is told to everybody, so it must not come from what could be guessed by it, as
// the passwords or what is derived from them.
func (u *users) salt(m Mechanism, name string, size int) []byte {
	salt := make([]byte, size)
	for at := 0; at < size; {
		at += copy(salt[at:], sign(m.hash(), u.key, fmt.Sprintf("salt\x00%s\x00%d\x00%s", m, at, name)))
	}
	return salt
}

// pick gives a number below n that goes with a name.
func (u *users) pick(name string, n int) int {
	sum := sign(sha256.New, u.key, "pick\x00"+name)
	return int(binary.BigEndian.Uint64(sum) % uint64(n))
}
