package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asProgram has the test binary be the program, for what starts itself.
const asProgram = "OFFSETPROXY_BENCH_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}
