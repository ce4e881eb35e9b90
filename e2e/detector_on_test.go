//go:build race

package e2e

// raceDetector: these tests have it, so the program is built with it too.
const raceDetector = true
