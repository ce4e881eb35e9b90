package proxy_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/offsetproxy/offsetproxy/proxy"
)

func TestNewNamesTheBadField(t *testing.T) {
	tests := []struct {
		field  string
		change func(*proxy.Config)
	}{
		{"Bootstrap", func(c *proxy.Config) { c.Bootstrap = nil }},
		{"Bootstrap[1]", func(c *proxy.Config) { c.Bootstrap = append(c.Bootstrap, "broker") }},
		{"Bootstrap[0]", func(c *proxy.Config) { c.Bootstrap = []string{"broker:0"} }},
		{"Bootstrap[0]", func(c *proxy.Config) { c.Bootstrap = []string{":9092"} }},
		{"Listen", func(c *proxy.Config) { c.Listen = "" }},
		{"Listen", func(c *proxy.Config) { c.Listen = "127.0.0.1:70000" }},
		{"BrokerPorts", func(c *proxy.Config) { c.BrokerPorts = proxy.PortRange{First: 2, Last: 1} }},
		{"BrokerPorts", func(c *proxy.Config) { c.BrokerPorts = proxy.PortRange{First: 1, Last: 70000} }},
		{"BrokerPorts", func(c *proxy.Config) { c.BrokerPorts = proxy.PortRange{First: 9000, Last: 9100} }},
		{"NodePorts", func(c *proxy.Config) { c.NodePorts = map[int32]int{1: 0} }},
		{"NodePorts", func(c *proxy.Config) { c.NodePorts = map[int32]int{1: 9092} }},
		{"NodePorts", func(c *proxy.Config) { c.NodePorts = map[int32]int{1: 9500, 2: 9500} }},
		{"Rules[0].Topics", func(c *proxy.Config) { c.Rules = []proxy.Rule{{Topics: "[", Mode: proxy.ModeRequire}} }},
		{"Rules[0].Topics", func(c *proxy.Config) { c.Rules = []proxy.Rule{{Mode: proxy.ModeRequire}} }},
		{"Rules[0].Mode", func(c *proxy.Config) { c.Rules = []proxy.Rule{{Topics: "*", Mode: 99}} }},
		{"Default", func(c *proxy.Config) { c.Default = -1 }},
		{"BrokerKind", func(c *proxy.Config) { c.BrokerKind = 99 }},
		{"FenceID", func(c *proxy.Config) { c.FenceID = -1 }},
		{"MaxFrameBytes", func(c *proxy.Config) { c.MaxFrameBytes = -1 }},
		{"MaxHeldBytes", func(c *proxy.Config) { c.MaxHeldBytes = -1 }},
		{"DialTimeout", func(c *proxy.Config) { c.DialTimeout = -time.Second }},
	}
	for _, test := range tests {
		cfg := proxy.Config{Bootstrap: []string{"broker:9092"}, Listen: "127.0.0.1:9092"}
		test.change(&cfg)
		_, err := proxy.New(cfg)
		if !errors.Is(err, proxy.ErrConfig) {
			t.Errorf("%s: got %v, want ErrConfig", test.field, err)
			continue
		}
		if !strings.Contains(err.Error(), ": "+test.field+":") {
			t.Errorf("%s is not named by %q", test.field, err)
		}
	}
	if _, err := proxy.New(proxy.Config{Bootstrap: []string{"broker:9092"}, Listen: "127.0.0.1:9092"}); err != nil {
		t.Errorf("a good configuration: %v", err)
	}
}

func TestRunTwiceFails(t *testing.T) {
	p := scripted(t, proxy.Config{}, echo)
	if err := p.Run(t.Context()); err == nil {
		t.Error("the second Run succeeded")
	}
}
