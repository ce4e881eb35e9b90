package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

var errNoProfile = errors.New("the proxy gives no profile: it must run with --pprof")

// profileAll takes a sample more of each way that can be profiled, which is not
// counted, and meanwhile a CPU profile.
func profileAll(ctx context.Context, r *run, measure string, ways []way, round int) error {
	if err := os.MkdirAll(r.profiles, 0o755); err != nil {
		return err
	}
	for _, w := range ways {
		if w.target == nil || w.target.admin == "" {
			continue
		}
		file := filepath.Join(r.profiles, measure+"-"+w.name+".pb.gz")
		taken := make(chan error, 1)
		go func() { taken <- saveProfile(ctx, w.target, r.seconds, file) }()
		_, err := w.sample(ctx, round)
		if err = errors.Join(err, <-taken); err != nil {
			return fmt.Errorf("%s of %s, for a profile: %w", measure, w.name, err)
		}
		r.log("%s: profile of %s in %s", measure, w.name, file)
	}
	return nil
}

// saveProfile takes a profile of about so long, of whole seconds.
func saveProfile(ctx context.Context, t *target, length time.Duration, path string) error {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", t.admin, max(1, int(length.Seconds())))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoProfile, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s", errNoProfile, answer.Status)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, answer.Body)
	return errors.Join(err, file.Close())
}
