package filewatch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long nothing must happen before files are looked at: several
	// that belong together are seldom replaced at one instant.
	settle = 200 * time.Millisecond
	// patience bounds how long that is waited for.
	patience = 5 * time.Second
	// lookInterval is how often files are looked at though nothing was told: not all
	// file systems tell.
	lookInterval = time.Minute
	// maxLook bounds what is read of a file to see that it has changed, in bytes.
	maxLook = 4 << 20
)

// Watcher watches some files. Whoever reads them makes it first: what is read after
// New and changes before Run is told too.
type Watcher struct {
	files   []string
	logger  *slog.Logger // Run's
	changed func()
	last    [sha256.Size]byte // Run's own
}

// New returns a Watcher that does nothing yet but has looked at the files. changed
// is called by Run, one call at a time, each time that any file's content is another,
// has gone, or has come.
func New(changed func(), files ...string) *Watcher {
	return &Watcher{files: files, changed: changed, last: look(files)}
}

// Run watches until ctx ends. It may be called once. Where the system cannot watch
// (no descriptors left, say), it logs that and looks once a minute.
func (w *Watcher) Run(ctx context.Context, logger *slog.Logger) {
	w.logger = logger
	if len(w.files) == 0 {
		return
	}
	var events <-chan fsnotify.Event
	var failures <-chan error
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.logger.Warn("files cannot be watched, looking at them once a minute", "files", w.files, "err", err)
	} else {
		defer func() { _ = watcher.Close() }()
		events, failures = watcher.Events, watcher.Errors
	}
	watched := map[string]bool{}
	w.watch(watcher, watched)
	// Between New and now.
	w.compare()
	regular := time.NewTicker(lookInterval)
	defer regular.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-events:
			if !open {
				events = nil
				continue
			}
			awaitRest(ctx, events)
		case err, open := <-failures:
			if !open {
				failures = nil
				continue
			}
			// Events were lost, so whatever they were is looked for.
			w.logger.Warn("changes of files may have been missed, looking at them", "files", w.files, "err", err)
		case <-regular.C:
		}
		w.watch(watcher, watched)
		w.compare()
	}
}

// awaitRest waits until nothing has happened for a moment.
func awaitRest(ctx context.Context, events <-chan fsnotify.Event) {
	longest := time.NewTimer(patience)
	defer longest.Stop()
	quiet := time.NewTimer(settle)
	defer quiet.Stop()
	for {
		select {
		case _, open := <-events:
			if !open {
				return
			}
			quiet.Reset(settle)
		case <-quiet.C:
			return
		case <-longest.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// watch has the directories of all files watched, and those that symbolic links
// lead to; which ones that are changes with the links.
func (w *Watcher) watch(watcher *fsnotify.Watcher, watched map[string]bool) {
	if watcher == nil {
		return
	}
	wanted := map[string]bool{}
	for _, file := range w.files {
		wanted[filepath.Dir(file)] = true
		if target, err := filepath.EvalSymlinks(file); err == nil {
			wanted[filepath.Dir(target)] = true
		}
	}
	for dir := range watched {
		if !wanted[dir] {
			_ = watcher.Remove(dir) // the system does it if it has gone
			delete(watched, dir)
		}
	}
	for dir := range wanted {
		// One that was watched, has gone and has come again, is another.
		if err := watcher.Add(dir); err != nil {
			if !errors.Is(err, fs.ErrNotExist) && !watched[dir] {
				w.logger.Warn("directory cannot be watched, looking at its files once a minute", "directory", dir, "err", err)
			}
			delete(watched, dir)
			continue
		}
		watched[dir] = true
	}
}

func (w *Watcher) compare() {
	if now := look(w.files); now != w.last {
		w.last = now
		w.changed()
	}
}

// look stands for the contents of files.
func look(files []string) [sha256.Size]byte {
	all := sha256.New()
	for _, file := range files {
		of, err := content(file)
		if err != nil {
			fmt.Fprintf(all, "%q: none\n", file)
			continue
		}
		fmt.Fprintf(all, "%q: %x\n", file, of)
	}
	return [sha256.Size]byte(all.Sum(nil))
}

func content(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, maxLook)); err != nil {
		return nil, err
	}
	return sum.Sum(nil), nil
}
