package main

import (
	"encoding/json"
	"testing"
)

func TestDemo(t *testing.T) {
	got := call(t, "", "demo", "--duration", "1s", "--output", "json")
	var report demoJSON
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	if got.code != exitOK || !report.Holds || report.Won == 0 || report.Refused == 0 || report.Records < report.Won {
		t.Errorf("code %d, %+v", got.code, report)
	}
	if report.Refusal == nil || report.Refusal.Code != 1 {
		t.Errorf("refusal as the client saw it: %+v", report.Refusal)
	}
}

// The twin of TestDemo: with the fence off the check must fail.
func TestDemoUnsafe(t *testing.T) {
	got := call(t, "", "demo", "--unsafe", "--duration", "2s", "--writers", "8", "--output", "json")
	var report demoJSON
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	if got.code != exitFailed || report.Holds || len(report.First) == 0 {
		t.Errorf("code %d, %+v", got.code, report)
	}
}
