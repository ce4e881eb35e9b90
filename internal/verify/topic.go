package verify

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	preparePause = 100 * time.Millisecond
)

// ErrNoTopic means that the topic is not there.
var ErrNoTopic = errors.New("the topic does not exist")

// ErrUnprepared means that the topic could not be created, or its ends not be read.
var ErrUnprepared = errors.New("the topic cannot be prepared")

// newRunName makes a name that no other run has.
func newRunName() string {
	id := make([]byte, 4)
	rand.Read(id)
	return hex.EncodeToString(id)
}

// topicAdmin sees to the topic before a run.
type topicAdmin struct{ cfg *Config }

// prepare creates the topic if that is asked for, and gives where each partition
// ends.
func (a topicAdmin) prepare(ctx context.Context) ([]Offset, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Wait)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(a.cfg.Proxies...), kgo.Dialer(a.cfg.dial()), kgo.ClientID(clientID), kgo.RequestRetries(3), kgo.RetryTimeout(10*time.Second))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnprepared, a.cfg.Topic, err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	for told := false; ; told = true {
		var begins []Offset
		err := a.create(ctx, admin)
		if err == nil {
			begins, err = a.ends(ctx, admin)
		}
		if err == nil || errors.Is(err, ErrNoTopic) && !a.cfg.Create {
			return begins, err
		}
		if !told {
			fmt.Fprintf(a.cfg.Progress, "Topic %s cannot be prepared yet: %v. Trying for %v.\n", a.cfg.Topic, err, a.cfg.Wait)
		}
		timer := time.NewTimer(preparePause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w: %s: %w", ErrUnprepared, a.cfg.Topic, err)
		}
	}
}

// create creates the topic, if that is asked for and it is not there.
func (a topicAdmin) create(ctx context.Context, admin *kadm.Client) error {
	if !a.cfg.Create {
		return nil
	}
	brokers, err := admin.ListBrokers(ctx)
	if err != nil {
		return err
	}
	replicas := min(a.cfg.Replicas, max(1, len(brokers)))
	inSync := strconv.Itoa(max(1, replicas-1))
	_, err = admin.CreateTopic(ctx, int32(a.cfg.Partitions), int16(replicas), map[string]*string{"min.insync.replicas": &inSync}, a.cfg.Topic)
	if errors.Is(err, kerr.TopicAlreadyExists) {
		return nil
	}
	return err
}

// ends gives the ends of the partitions that are to be written.
func (a topicAdmin) ends(ctx context.Context, admin *kadm.Client) ([]Offset, error) {
	listed, err := admin.ListEndOffsets(ctx, a.cfg.Topic)
	if err != nil {
		return nil, err
	}
	var ends []Offset
	for p := range a.cfg.Partitions {
		end, ok := listed.Lookup(a.cfg.Topic, int32(p))
		if errors.Is(end.Err, kerr.UnknownTopicOrPartition) && p == 0 || !ok && p == 0 {
			return nil, fmt.Errorf("%w: %s", ErrNoTopic, a.cfg.Topic)
		}
		if !ok {
			break // it has no more
		}
		if end.Err != nil {
			return nil, fmt.Errorf("end of partition %d: %w", p, end.Err)
		}
		ends = append(ends, Offset(end.Offset))
	}
	return ends, nil
}
