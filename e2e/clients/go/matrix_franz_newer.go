//go:build !older

package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// newerGroup is what versions of franz-go before 1.22 do not have.
func (f *franzSubject) newerGroup(group string, kind groupKind) ([]kgo.Opt, error) {
	if kind == consumerGroup {
		return []kgo.Opt{
			kgo.ConsumerGroup(group), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()),
		}, nil
	}
	// Its admin client has no call for settings of groups.
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for name, value := range map[string]string{"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"} {
		config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		config.Name, config.Value = name, &value
		resource.Configs = append(resource.Configs, config)
	}
	request.Resources = append(request.Resources, resource)
	err := f.with(func(ctx context.Context, client *kgo.Client) error {
		altered, err := request.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(altered.Resources[0].ErrorCode)
	})
	if err != nil {
		return nil, err
	}
	return []kgo.Opt{kgo.ShareGroup(group)}, nil
}

func flushAcks(ctx context.Context, client *kgo.Client) error {
	client.MarkAcks(kgo.AckAccept)
	return client.FlushAcks(ctx)
}
