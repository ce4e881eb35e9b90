package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/offsetproxy/offsetproxy/internal/appender"
)

const demoAdminTimeout = 30 * time.Second

// demoTopic is a topic of one partition, made for one demo.
type demoTopic struct {
	name      string
	bootstrap []string
	dial      appender.Dial
}

// createDemoTopic makes a topic under a name that nobody else has.
func createDemoTopic(ctx context.Context, dial appender.Dial, bootstrap []string) (*demoTopic, error) {
	id := make([]byte, 4)
	rand.Read(id)
	t := &demoTopic{name: "offsetproxy-demo-" + hex.EncodeToString(id), bootstrap: bootstrap, dial: dial}
	err := t.admin(ctx, func(ctx context.Context, admin *kadm.Client) error {
		brokers, err := admin.ListBrokers(ctx)
		if err != nil {
			return err
		}
		replicas := min(3, len(brokers))
		inSync := strconv.Itoa(max(1, replicas-1))
		_, err = admin.CreateTopic(ctx, 1, int16(replicas), map[string]*string{"min.insync.replicas": &inSync}, t.name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create topic %s at %s: %w", t.name, strings.Join(bootstrap, ","), err)
	}
	return t, nil
}

// delete removes the topic.
func (t *demoTopic) delete(ctx context.Context) error {
	err := t.admin(ctx, func(ctx context.Context, admin *kadm.Client) error {
		_, err := admin.DeleteTopic(ctx, t.name)
		return err
	})
	if err != nil {
		return fmt.Errorf("delete topic %s (delete it yourself): %w", t.name, err)
	}
	return nil
}

// admin runs a few requests at the brokers themselves, around the proxies.
func (t *demoTopic) admin(ctx context.Context, do func(context.Context, *kadm.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, demoAdminTimeout)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(t.bootstrap...),
		kgo.Dialer(t.dial),
		kgo.ClientID(clientID),
		kgo.RequestRetries(3),
		kgo.RetryTimeout(10*time.Second),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	return do(ctx, kadm.NewClient(client))
}
